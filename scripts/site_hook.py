"""Brings into the site what its pages link to outside docs/; mkdocs calls `on_files` and `on_page_markdown`.

Pages are read in the repository too, so that their links lead to files of the repository: `../results/quick.json`.
On the site such a file lies at its path from the repository's root. Markdown becomes a page there, and so does a
directory, with its files in it; anything else is copied. Pages of the navigation that are not in docs/ are found in
the same way.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs/"
WIDE = 7
"""A table of more columns than this has no room beside the table of contents."""

_LINK = re.compile(r"(\]\()([^)\s#]+)([^)]*\))")
_SPREAD = re.compile(r"(\d) ± (\d)")
"""What no line should be broken in."""
_FENCE = re.compile(r"^\s*(```|~~~)")
_LANGUAGES = {".py": "python", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what the navigation and the links of pages name."""
    named = [path for path in _named(config.nav) if path not in files.src_uris]
    wanted = list(named)
    for page in files.documentation_pages():
        wanted += _outside(page.content_string, _in_repository(page.src_uri))
    while wanted:
        path = wanted.pop()
        if _on_site(path) in files.src_uris or not (ROOT / path).exists():
            continue
        file = _file(path, config)
        if path not in named:
            file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
        if file.is_documentation_page():
            wanted += _outside(file.content_string, path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site.

    A page gets a title if it has none, and the whole width if it has a wide table.
    """
    uri = page.file.src_uri
    if not re.search(r"^# ", markdown, re.MULTILINE):
        markdown = f"# {uri}\n\n{markdown}"
    if any(line.startswith("|") and line.count(" | ") >= WIDE for line in markdown.splitlines()):
        page.meta["hide"] = ["toc"]
    here, there = posixpath.dirname(_in_repository(uri)), posixpath.dirname(uri)

    def moved(target: str) -> str:
        return posixpath.relpath(_on_site(posixpath.normpath(posixpath.join(here, target))), there or ".")

    return _SPREAD.sub("\\1\u00a0±\u00a0\\2", _with_links(markdown, moved))


def _named(nav: Any) -> Iterator[str]:
    """Every path in a navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list | dict):
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _named(part)


def _outside(markdown: str, path: str) -> list[str]:
    """What a file of the repository links to that does not lie in docs/, by its path from the root."""
    found: list[str] = []

    def note(target: str) -> str:
        found.append(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
        return target

    _with_links(markdown, note)
    return [target for target in found if not target.startswith((DOCS, ".."))]


def _with_links(markdown: str, change: Callable[[str], str]) -> str:
    """The text with the targets of relative links changed; code blocks are left alone."""
    lines, in_code = [], False

    def replaced(link: re.Match[str]) -> str:
        target = link[2]
        return link[0] if ":" in target else link[1] + change(target) + link[3]

    for line in markdown.split("\n"):
        in_code ^= bool(_FENCE.match(line))
        lines.append(line if in_code else _LINK.sub(replaced, line))
    return "\n".join(lines)


def _file(path: str, config: MkDocsConfig) -> File:
    source = ROOT / path
    if source.is_dir():
        return File.generated(config, _on_site(path), content=_listing(source))
    return File.generated(config, _on_site(path), abs_src_path=str(source))


def _listing(directory: Path) -> str:
    """A directory as a page: its files, one after another."""
    parts = [f"# {directory.relative_to(ROOT).as_posix()}"]
    for path in sorted(directory.rglob("*")):
        if path.suffix in _LANGUAGES and path.read_text():
            parts.append(f"## `{path.relative_to(directory).as_posix()}`")
            parts.append(f"```{_LANGUAGES[path.suffix]}\n{path.read_text().rstrip()}\n```")
    return "\n\n".join(parts)


def _on_site(path: str) -> str:
    """Where a file of the repository lies on the site; its README is the site's first page."""
    path = "index.md" if path == "README.md" else path.removeprefix(DOCS)
    return f"{path}.md" if (ROOT / path).is_dir() else path


def _in_repository(uri: str) -> str:
    """Where a page of the site lies in the repository."""
    inside = DOCS + uri
    return inside if (ROOT / inside).exists() else uri
