"""What official data are: archives, where they come from and where they go. ``fetch`` brings them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seed_envs.errors import UnknownName

Counts = dict[str, int]
"""Files by group."""
Row = tuple[str, int, int, str]
"""A split, the tasks found, the tasks released, and what differs ("" when nothing does)."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One official zip and the one kind of file that is wanted from it, or one official file as it is."""

    part: str
    """What users call it."""
    path: str
    """Where it is below the base URL."""
    files: str
    """The files wanted from every group: a path with ``*`` for folders and names that vary."""
    saved_as: str = ""
    """The name browsers give it where that is another than the address ends with."""
    begins: bytes = b""
    """For a file that is no zip: the bytes one of which it begins with. It is kept as ``path`` says."""
    optional: bool = False
    """Whether it is brought only when its part is named."""
    address: str = ""
    """Its official address where that is not ``path`` below the source's; mirrors have it at ``path``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The file names it may have."""
        return tuple(filter(None, (self.saved_as, self.path.rsplit("/", 1)[-1])))


@dataclass(frozen=True, slots=True)
class Source:
    """What one benchmark's official data are, where they come from and where they go."""

    name: str
    """What users call it, and the name of its folder below ``$SEED_DATA``."""
    url: str
    """The official place. ``--base-url`` or ``SEED_FETCH_BASE`` name a mirror with the same paths below it."""
    folder: str
    """Where the groups go below the data root."""
    groups: tuple[str, ...]
    """Folders that are looked for anywhere in an archive: what is above them varies by release."""
    archives: tuple[Archive, ...]
    """The first is the one that no task can be played without."""
    complete: Callable[[Path, Archive], bool]
    """Whether a data root has every file of an archive, whoever brought it."""
    compare: Callable[[Path], list[Row]]
    """Compares a data root with what was released."""
    variable: str = ""
    """The environment variable that names the data root, where there is one."""

    def count(self, dest: Path, archive: Archive) -> Counts:
        """Return how many files of an archive are there, by group."""
        return {group: sum(1 for _ in (dest / self.folder / group).glob(archive.files)) for group in self.groups}

    def wanted(self, parts: Sequence[str]) -> list[Archive]:
        """Return the archives of these parts; all but the optional ones when none are named.

        Raises:
            UnknownName: for a part that does not exist.
        """
        known = [archive.part for archive in self.archives]
        for part in parts:
            if part not in known:
                raise UnknownName("part of the data", part, known)
        return [a for a in self.archives if a.part in parts or not (parts or a.optional)]

    def address(self, archive: Archive, base_url: str = "") -> str:
        """Return where an archive is: at the mirror ``base_url``, or at the official place."""
        if archive.address and not base_url:
            return archive.address
        return f"{(base_url or self.url).rstrip('/')}/{archive.path}"
