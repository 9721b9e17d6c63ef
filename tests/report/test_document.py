"""The page as a file: nothing in a run can become markup, and nobody's file is overwritten."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from feddst.errors import CheckpointError
from feddst.report import document, write_report
from feddst.report.content import content
from feddst.report.document import SCRIPTS, build, embedded
from feddst.runtime.shown import COLOURS

from .conftest import MakeRun

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{data}}"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def tags(page: str) -> list[str]:
    parser = Tags()
    parser.feed(page)
    return parser.seen


def test_the_page_holds_the_data_and_asks_for_nothing(comparison: Path) -> None:
    page = write_report([comparison]).read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["entries"][0]["label"] == "fedavgm"
    assert not re.search(r"""(src|href)=["']?(https?:|//)|@import|url\((?!#)""", page)
    assert "default-src 'none'" in page


def test_a_hostile_name_is_text_wherever_it_stands(make_run: MakeRun) -> None:
    plain = content([make_run("plain", [0.1])])
    hostile = json.loads(json.dumps(plain))
    hostile["title"] = hostile["entries"][0]["label"] = HOSTILE
    assert tags(build(hostile)) == tags(build(plain))


def test_embedded_json_has_no_way_out_of_its_element() -> None:
    text = embedded({"name": HOSTILE + "<!--\u2028"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text)["name"] == HOSTILE + "<!--\u2028"
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded(float("nan"))


def test_each_colour_of_pictures_has_one_on_dark_ground_that_scripts_use() -> None:
    assert len(document.DARK_COLOURS) == len(COLOURS)
    assert f"const COLOURS = {len(COLOURS)};" in (Path(document.__file__).parent / "page/chart.js").read_text()


def test_every_script_is_part_of_the_page() -> None:
    folder = Path(document.__file__).parent / "page"
    assert {path.name for path in folder.glob("*.js")} == set(SCRIPTS)


def test_a_report_goes_into_the_one_directory_or_here(
    comparison: Path, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = make_run("other", [0.1], seed=7)
    assert write_report([comparison]) == comparison / "report.html"
    assert write_report([comparison, other]) == Path("report.html")
    assert write_report([other], tmp_path) == tmp_path / "report.html"
    assert write_report([other], tmp_path / "new/mine.html").is_file()


def test_a_link_that_leads_nowhere_is_not_replaced(comparison: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="exists already and is not a report"):
        write_report(comparison, link)
    assert link.is_symlink()


def test_a_report_is_replaced_and_any_other_file_is_not(comparison: Path, tmp_path: Path) -> None:
    mine = tmp_path / "thesis.html"
    mine.write_text("<title>years of work</title>")
    with pytest.raises(CheckpointError, match=r"out: .*thesis\.html exists already and is not a report"):
        write_report([comparison], mine)
    assert mine.read_text() == "<title>years of work</title>"
    first = write_report([comparison]).read_bytes()
    assert write_report([comparison]).read_bytes() == first
