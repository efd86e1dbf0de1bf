"""What every page shares: templates, style, security policy, and settings as lists of facts."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness.html.packing import visible
from harness.table import ceiling, number, percent
from seed_envs.seeding import canonical

_HERE = Path(__file__).parent


def render_page(
    template: str,
    *,
    script: str | None = None,
    styles: Sequence[str] = ("report.css",),
    framed_style: str = "",
    **values: Any,
) -> bytes:
    """Return a self-contained page; nothing but its own style and script can run in it.

    Args:
        template: A file of ``templates``, without ``.html.jinja``.
        script: The file beside this one that the page runs, if any.
        styles: The files beside this one that it looks by.
        framed_style: The style sheet that documents in its frames may have; they inherit its policy.
        values: What the template shows; texts are escaped.
    """
    style = "".join(map(_asset, styles))
    code = None if script is None else _asset(script)
    allowed = " ".join(map(_csp_hash, filter(None, (style, framed_style))))
    runs = "" if code is None else f"script-src {_csp_hash(code)}; "
    page = _template(f"{template}.html.jinja").render(
        **values,
        csp=f"default-src 'none'; {runs}style-src {allowed}; img-src data:; base-uri 'none'; form-action 'none'",
        script=None if code is None else Markup(code),
        style=Markup(style),
    )
    return (page + "\n").encode("utf-8", "replace")


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {"percent": percent, "number": number, "ceiling": ceiling}
    return environment.get_template(name)


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _csp_hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def origin(
    starts: Sequence[Mapping[str, Any]],
    *,
    made: str,
    note: str,
    facts: Mapping[str, str],
    sections: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what the last part of a page shows: where its numbers come from.

    Args:
        starts: The provenance of every start of the run, the last one last.
        made: What was done with the command: ``Played``, ``Trained``.
        note: A sentence about what identifies the run.
        facts: What identifies it; code and machine of the last start are added.
        sections: Settings by heading, folded; what is no mapping is left out, the packages are added.
    """
    last = starts[-1] if starts else {}
    machine = {}
    if last:
        dirty = " with changes that are not committed" if last.get("git_dirty") is True else ""
        machine = {
            "commit": f"{last.get('git_commit') or 'not known'}{dirty}",
            "python": last.get("python"),
            "platform": f"{last.get('platform')}, {last.get('cpus')} CPUs",
        }
    folded = {**sections, "Packages": last.get("packages")}
    return {
        "command": last.get("command", ""),
        "made": made,
        "note": note,
        "facts": {**facts, **machine},
        "sections": {name: flat(items) for name, items in folded.items() if isinstance(items, Mapping)},
        "starts": [flat({key: value for key, value in start.items() if key != "packages"}) for start in starts],
    }


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as dotted keys and short texts."""
    found: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            found |= flat(item, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = "-" if item is None else item if isinstance(item, str) else canonical(item)
    return found
