"""The study on docs/studies.md is one."""

import re
from pathlib import Path

from feddst.studies.reproduce import StudyConfig

PAGE = Path(__file__).parents[2] / "docs/studies.md"


def test_the_study_on_the_page_can_be_made(tmp_path: Path) -> None:
    [block] = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "masks.toml").write_text(block)
    study = StudyConfig(str(tmp_path / "masks.toml"))
    study.check()
    assert [row.name for row in study.all_rows()] == ["static", "moving"]
    assert study.compared == (("moving", "static"),)
