"""Download one file in a way that can be interrupted and repeated."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from seed_envs.errors import ConfigError, DataError

RETRIES = 5
"""Attempts in a row that may bring nothing new before a download is given up."""

Report = Callable[[str, int, int | None, str], None]
"""Told (what, done so far, total or None, unit): ``bytes`` while downloading, ``files`` while unpacking."""


def silent(what: str, done: int, total: int | None, unit: str) -> None:
    """Report nothing."""


class _Again(Exception):
    """The attempt failed in a way that a further one may mend."""


def download(
    url: str,
    target: Path,
    *,
    report: Report = silent,
    retries: int = RETRIES,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Download ``url`` to ``target``, going on from ``target``.part where an earlier call stopped.

    Where the server cannot go on, as for archives that GitHub makes while sending, it starts over.
    Dropped connections, 5xx answers and short bodies are tried again, each wait twice the last,
    until ``retries`` attempts in a row brought nothing new.

    Raises:
        ConfigError: when ``url`` is no http(s) address.
        DataError: when the server refuses or the attempts are used up.
        OSError: when the disk is full.
    """
    part = target.with_name(target.name + ".part")
    furthest = failures = 0
    with httpx.Client(follow_redirects=True, timeout=30, headers={"Accept-Encoding": "identity"}) as client:
        while True:
            try:
                _attempt(client, url, part, report)
                break
            except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
                raise ConfigError(f"cannot download {url}: {error}; expected an http or https address") from error
            except (_Again, httpx.HTTPError) as error:
                reason = str(error) or type(error).__name__
            size = _size(part)
            failures = 0 if size > furthest else failures + 1
            furthest = max(furthest, size)
            if failures > retries:
                raise DataError(
                    f"cannot download {url}: {reason}; what has arrived is kept, the same command goes on "
                    "from there if the server lets it, and --by-hand shows the way without it"
                )
            wait = min(2.0**failures, 30.0)
            report(f"{target.name}: {reason}; again in {wait:g} s", size, None, "bytes")
            sleep(wait)
    part.replace(target)
    _tag_file(part).unlink(missing_ok=True)


def _attempt(client: httpx.Client, url: str, part: Path, report: Report) -> None:
    """Get what is missing of ``url`` in one request; returns only when ``part`` is complete."""
    have, tag_file = _size(part), _tag_file(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and tag_file.is_file():
        headers["If-Range"] = tag_file.read_text(encoding="utf-8")  # never join halves of two files
    with client.stream("GET", url, headers=headers) as response:
        start, total = _range_of(response, have, part)
        if have and start == total:
            return
        need_space(part.parent, (total or 0) - start)
        if not start:
            _keep_tag(response, tag_file)
        done = start
        with part.open("ab" if start else "wb") as file:
            for block in response.iter_raw():
                file.write(block)
                done += len(block)
                report(part.stem, done, total, "bytes")
    if total is None:
        report(part.stem, done, done, "bytes")
    elif done != total:
        raise _Again(f"{done} of {total} bytes arrived")


def _range_of(response: httpx.Response, have: int, part: Path) -> tuple[int, int | None]:
    """Return where the body starts and how long the whole file is, if the server says.

    Raises:
        _Again: when another request may be answered better.
        DataError: when no other answer is to be expected.
    """
    status = response.status_code
    if status == 200:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdigit() else None
    if status in (206, 416):
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        whole = int(total) if total.isdigit() else None
        if status == 206 and span.partition("-")[0] == str(have):
            return have, whole
        if status == 416 and whole == have:
            return have, have
        part.unlink(missing_ok=True)
        raise _Again("the server cannot go on from where the last download stopped")
    if status in (408, 429) or status >= 500:
        raise _Again(f"the server answered {status} {response.reason_phrase}")
    raise DataError(
        f"cannot download {response.request.url}: the server answered {status} {response.reason_phrase}; "
        "if the file has moved, name its new place with --base-url, or see --by-hand"
    )


def need_space(folder: Path, needed: int) -> None:
    """Check that ``needed`` bytes fit on the disk of ``folder``.

    Raises:
        OSError: when they do not.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed:,} bytes are needed and {free:,} are free", os.fspath(folder))


def _keep_tag(response: httpx.Response, tag_file: Path) -> None:
    etag = response.headers.get("ETag", "")
    tag = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")  # weak tags cannot resume
    tag_file.unlink(missing_ok=True)
    if tag:
        tag_file.write_text(tag, encoding="utf-8")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _tag_file(part: Path) -> Path:
    """Where the server's name for this version of the file is kept beside the partial download."""
    return part.with_name(part.name + ".tag")
