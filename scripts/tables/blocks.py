"""Blocks of a page that a function writes: finding them, and writing them anew."""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from scripts.tables.records import ROOT

Builder = Callable[..., str]

BUILDERS: dict[str, Builder] = {}
"""What can stand in a block, by the first word of its comment."""
_MODULES = ("accuracy", "comparisons", "growth", "paper", "server", "speed", "summary", "traffic")
_BLOCK = re.compile(r"^<!-- record: (?P<words>.+?) -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#]+)")


def block(builder: Builder) -> Builder:
    """Marks a function that writes a block; it returns Markdown, in which links begin at the repository's root."""
    BUILDERS[builder.__name__] = builder
    return builder


def pages() -> Iterator[Path]:
    """Every page that is written by hand."""
    yield from sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")))


def filled(page: Path, text: str) -> str:
    """The text of a page with each of its blocks written anew."""
    folder = page.parent.relative_to(ROOT).as_posix()
    return _BLOCK.sub(lambda found: _made(found["words"], folder), text)


def outside(text: str) -> str:
    """The text of a page without its blocks: what was written by hand."""
    return _BLOCK.sub("", text)


def _made(words: str, folder: str) -> str:
    for module in _MODULES:
        import_module(f"scripts.tables.{module}")
    name, *arguments = shlex.split(words)
    if name not in BUILDERS:
        raise ValueError(f"a block is {', '.join(sorted(BUILDERS))}, not {name}")
    content = _LINK.sub(lambda link: f"]({posixpath.relpath(link[1], folder)}", BUILDERS[name](*arguments))
    return f"<!-- record: {words} -->\n\n{content}\n\n<!-- end -->"
