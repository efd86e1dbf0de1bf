"""Names to things, resolved late, and the discovery of third-party packages."""

import importlib
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from seed_envs.errors import ConfigError, UnknownName

T = TypeVar("T")
PLUGIN_GROUP = "seed.plugins"


class Registry(Generic[T]):
    """A table of names; an entry may be ``"module:attribute"``, imported at first use."""

    def __init__(self, kind: str) -> None:
        """Make an empty table of ``kind`` (used in messages)."""
        self.kind = kind
        self._entries: dict[str, T | str] = {}

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
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = cast(T, getattr(importlib.import_module(module), attribute))
            self._entries[name] = entry
        return entry

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
        ConfigError: when a plug-in cannot be imported.
    """
    installed = sorted(entry_points(group=PLUGIN_GROUP), key=lambda point: (point.name, point.value))
    wanted = [point.value for point in installed] + list(names)
    for name in wanted:
        _load_plugin(name)
    return tuple(dict.fromkeys(wanted))


_LOADED: set[str] = set()


def _load_plugin(name: str) -> None:
    if name in _LOADED:
        return
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"plug-in {name!r} cannot be loaded: {error}; expected module or module:function") from error
    if attribute and callable(found):
        found()
    _LOADED.add(name)
