"""The site is built without a warning, every link within it leads somewhere, and it loads nothing from elsewhere."""

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from inspect import ismodule
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urldefrag

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
LOADING = {"link": "href"} | dict.fromkeys(("script", "img", "iframe", "source", "video", "audio"), "src")
"""Where elements name what a browser fetches by itself."""
FAR = re.compile(r"(https?:)?//")


@dataclass
class Links(HTMLParser):
    """What a page links to and loads, and the names of places in it."""

    targets: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self.targets += [given[name] for name in ("href", "src") if name in given]
        if tag in LOADING and LOADING[tag] in given:
            self.loaded.append(given[LOADING[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@cache
def links_of(page: Path) -> Links:
    found = Links()
    found.feed(page.read_text())
    return found


def pages(site: Path) -> Iterator[Path]:
    yield from sorted(site.rglob("*.html"))


def broken(site: Path, page: Path) -> Iterator[str]:
    """The links of a page that lead nowhere."""
    for target in links_of(page).targets:
        path, anchor = urldefrag(unquote(target))
        if FAR.match(path) or path.startswith(("mailto:", "data:")):
            continue
        there = site / path.lstrip("/") if path.startswith("/") else page.parent / path if path else page
        there = there / "index.html" if there.is_dir() else there
        if not there.is_file() or (anchor and there.suffix == ".html" and anchor not in links_of(there).places):
            yield target


def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    found = {str(page.relative_to(site)): list(broken(site, page)) for page in pages(site)}
    assert len(found) > 30
    assert {page: targets for page, targets in found.items() if targets} == {}


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in pages(site):
        assert [path for path in links_of(page).loaded if FAR.match(path)] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)]*", sheet.read_text()) == []


def test_what_lies_outside_the_docs_is_on_the_site(site: Path) -> None:
    for path in (
        "results/table1-paper/table/index.html",
        "results/table2-paper/accuracy.png",
        "results/cpu-bench.json",
        "examples/flower/index.html",
        "CHANGELOG/index.html",
        "CONTRIBUTING/index.html",
    ):
        assert (site / path).is_file()
    table = (site / "results/table1-paper/table/index.html").read_text()
    assert "<table>" in table
    assert "quickstartclient_apppy" in links_of(site / "examples/flower/index.html").places


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "lightness"), [("light", (200, 255)), ("dark", (0, 70))])
def test_a_plot_has_the_ground_of_its_page(
    site: Path, scheme: Literal["light", "dark"], lightness: tuple[int, int]
) -> None:
    with sync_playwright() as started:
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = started.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-background-networking"]
        )
        page = browser.new_page(color_scheme=scheme)
        page.goto((site / "index.html").as_uri())
        shown = page.locator("article img").first.screenshot()
        browser.close()
    low, high = lightness
    assert low <= np.median(np.array(Image.open(io.BytesIO(shown)).convert("L"))) <= high


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("", "feddst"),
        ("methods", "feddst.methods"),
        ("core", "feddst.core"),
        ("aggregators", "feddst.aggregators"),
        ("sparsity", "feddst.sparsity"),
        ("wire", "feddst.wire"),
        ("clients", "feddst.clients"),
        ("clients", "feddst.clients.steps"),
        ("clients", "feddst.clients.optimizers"),
        ("clients", "feddst.objectives"),
        ("engines", "feddst.engines"),
        ("data", "feddst.data"),
        ("models", "feddst.models"),
        ("reproduce", "feddst.studies.reproduce"),
        ("report", "feddst.report"),
        ("logs", "feddst.logs"),
        ("export", "feddst.export"),
    ],
)
def test_the_reference_has_what_a_package_exports(site: Path, page: str, name: str) -> None:
    module = import_module(name)
    exported = [one for one in module.__all__ if one != "__version__" and not ismodule(getattr(module, one))]
    places = links_of(site / "api" / page / "index.html").places
    assert [one for one in exported if not any(place.endswith(f".{one}") for place in places)] == []
