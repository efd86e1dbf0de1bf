"""Names to things, resolved late, and the discovery of third-party packages."""

import importlib
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from seed_envs.errors import ConfigError, SeedError, UnknownName

T = TypeVar("T")
PLUGIN_GROUP = "seed.plugins"


class Registry(Generic[T]):
    """A table of names; an entry may be ``"module:attribute"``, imported at first use."""

    def __init__(self, kind: str) -> None:
        """Make an empty table of ``kind`` (used in messages)."""
        self.kind = kind
        self._entries: dict[str, T | str] = {}
        self._imported: dict[str, T] = {}

    def add(self, name: str, entry: T | str) -> None:
        """Register ``entry`` under ``name``; registering the same entry again does nothing.

        Raises:
            ConfigError: when ``name`` is taken by another entry.
        """
        if name in self._entries and self._entries[name] != entry:
            raise ConfigError(f"{self.kind} {name!r} is registered already; choose another name")
        self._entries[name] = entry

    def get(self, name: str) -> T:
        """Return the entry called ``name``.

        Raises:
            UnknownName: with the nearest names.
        """
        if name not in self._entries:
            raise UnknownName(self.kind, name, self._entries)
        entry = self._entries[name]
        if not isinstance(entry, str):
            return entry
        if name not in self._imported:
            module, _, attribute = entry.partition(":")
            self._imported[name] = cast(T, getattr(importlib.import_module(module), attribute))
        return self._imported[name]

    def __contains__(self, name: object) -> bool:
        """Whether ``name`` is registered."""
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, sorted."""
        return iter(sorted(self._entries))


def load_plugins(names: Iterable[str] = ()) -> tuple[str, ...]:
    """Import installed plug-ins (entry-point group ``seed.plugins``) and those in ``names``.

    A plug-in is ``module`` or ``module:function``; importing it, or calling the function, adds
    environments (``gymnasium.register``), policies and methods. The current folder is on the
    path, so an uninstalled module can be named. Loading twice does nothing more.

    Returns:
        The plug-ins loaded, installed ones first.

    Raises:
        ConfigError: when a plug-in cannot be imported or its function raises.
    """
    wanted = [*_installed(tuple(sys.path)), *names]
    for name in wanted:
        _load_plugin(name)
    return tuple(dict.fromkeys(wanted))


@lru_cache(maxsize=8)
def _installed(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the plug-ins of the packages on ``sys.path``; looking takes 5 ms, and each environment made would look."""
    points = sorted(entry_points(group=PLUGIN_GROUP), key=lambda point: (point.name, point.value))
    return tuple(point.value for point in points)


_LOADED: set[str] = set()


def _load_plugin(name: str) -> None:
    if name in _LOADED:
        return
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.append("")  # last, so that a file here never hides an installed module
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part)
        if attribute and callable(found):
            found()
    except (Exception, SystemExit) as error:  # a plug-in is somebody else's code: whatever it raises, one line says so
        what = error if isinstance(error, ImportError | SeedError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"plug-in {name!r} cannot be loaded: {what}; expected module or module:function") from error
    _LOADED.add(name)
