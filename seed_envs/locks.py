"""One process at a time: a lock that the system lets go of when its holder ends, however it ends."""

import fcntl
import os

from seed_envs.errors import ConfigError


def claim(handle: int, taken: str) -> None:
    """Lock an open file for this process until it is closed, without waiting.

    Args:
        handle: Of the file; closed when another process has the lock.
        taken: What to say then.

    Raises:
        ConfigError: when another process has the lock.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigError(taken) from None
