"""The report as one HTML file that needs nothing else: styles, scripts and data are inside, and no network is used."""

import base64
import hashlib
import html
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from feddst import __version__
from feddst.errors import CheckpointError
from feddst.report.content import content
from feddst.report.sources import Paths, as_paths
from feddst.runtime.shown import COLOURS
from feddst.runtime.storage import write_atomically

MARKER = '<meta name="generator" content="feddst report'
"""Marks a report as ours, which may be replaced."""
HEAD = 4096
NAME = "report.html"
DARK_COLOURS = ("#56a8e0", "#f08a4b", "#2cc79a", "#e3a3c6", "#f2b632", "#9bd3f5", "#e6e6e6", "#c2945f", "#b598ea")
"""The palette of pictures, lightened for a dark ground."""
SCRIPTS = (
    "elements.js",
    "numbers.js",
    "scales.js",
    "chart.js",
    "choices.js",
    "heading.js",
    "scores.js",
    "standings.js",
    "masks.js",
    "pixels.js",
    "traffic.js",
    "clients.js",
    "settings.js",
    "theme.js",
    "main.js",
)


def write_report(paths: Paths, out: str | Path | None = None) -> Path:
    """Write a report on runs as one HTML file, and return where it is.

    `paths` is the directory of a run, of a comparison or of a reproduction, or several of them. Without `out` the
    report goes into the one directory given, or else here. A report is replaced; any other file is left alone and the
    call refused.
    """
    given = as_paths(paths)
    target = report_path(given, out)
    refuse_foreign(target)
    page = build(content(given))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot create {target.parent}: {error.strerror or error}") from None
    write_atomically(target, page.encode())
    return target


def report_path(paths: Sequence[Path], out: str | Path | None) -> Path:
    """Where a report goes: to `out`, or into it if it is a directory; else into the only path, or here."""
    if out is None:
        return paths[0] / NAME if len(paths) == 1 else Path(NAME)
    return Path(out) / NAME if Path(out).is_dir() else Path(out)


def refuse_foreign(path: Path) -> None:
    """Raise if a file at `path` is not a report."""
    if os.path.lexists(path) and not is_report(path):
        raise CheckpointError(f"out: {path} exists already and is not a report of feddst: choose another name")


def is_report(path: Path) -> bool:
    """Whether a file is a report."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARKER.encode() in file.read(HEAD)


def build(data: dict[str, Any]) -> str:
    """The page that shows `data`."""
    script = _script()
    parts = {
        "generator": f'{MARKER} {__version__}">',
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'",
        "title": html.escape(f"{data['title']} – feddst report"),
        "metric": html.escape(data["metric"]["name"]),
        "Metric": html.escape(data["metric"]["title"]),
        "styles": _palette() + _text("report.css"),
        "data": embedded(data),
        "script": script,
    }
    page = _text("report.html")
    before, *rest = page.split("{{")
    pieces = [before]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


def embedded(data: Any) -> str:
    """JSON that stands in a script element: without `<`, nothing in it can end the element or begin another."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(_text(name) for name in SCRIPTS) + "})();\n"


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _palette() -> str:
    """The entries' colours, for light and for dark ground and for paper."""
    light, dark = (_variables(colours) for colours in (COLOURS, DARK_COLOURS))
    return (
        f":root{{{light}}}\n:root[data-theme=dark]{{{dark}}}\n"
        f"@media (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f"@media print{{:root:root:root{{{light}}}}}\n"
    )


def _variables(colours: Sequence[str]) -> str:
    return "".join(f"--c{i}:{colour};" for i, colour in enumerate(colours))


def _text(name: str) -> str:
    return (files("feddst.report") / "page" / name).read_text(encoding="utf-8")
