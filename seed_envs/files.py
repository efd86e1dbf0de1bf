"""Writing files so that a crash leaves the old one or the new one, never half of one."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to a temporary file beside ``path``, sync it and rename it there.

    Raises:
        OSError: when the disk is full or the folder cannot be written; ``path`` is unchanged.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def unwritable(folder: Path) -> Path | None:
    """Return the nearest thing on the way to ``folder`` that exists, if nothing can be written there."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there
