"""The picture of thrift is drawn from records as they are, with rows that have nothing to show yet."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from feddst.runtime.shown import COLOURS
from feddst.studies.reproduce import Record, load_record
from feddst.studies.reproduce.record import save_record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(script_named: Callable[[str], ModuleType]) -> ModuleType:
    return script_named("draw_thrift")


@pytest.fixture
def thrifty() -> Record:
    """As a study's: a row in full, one without runs, one whose run has not been evaluated yet."""
    plain = load_record(ROOT / "results/table1-paper")
    row = next(row for row in plain.rows if row.name == "feddst")
    [run, *_] = row.runs
    rows = (row, replace(row, title="later", runs=()), replace(row, title="soon", runs=(replace(run, rows=()),)))
    return replace(plain, rows=rows)


def test_rows_with_nothing_to_show_are_left_out(script: ModuleType, thrifty: Record) -> None:
    none = replace(thrifty, rows=())
    [(name, (uploads, best))] = script.lines_of(thrifty, none, none)
    assert name == thrifty.rows[0].title
    assert len(uploads) == len(best) > 100
    with_one_more = replace(thrifty.rows[0], runs=(*thrifty.rows[0].runs, *thrifty.rows[2].runs))
    assert list(script.best_so_far(with_one_more)[1]) == list(best)


def test_more_lines_than_colours_are_all_drawn(
    script: ModuleType, thrifty: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = replace(thrifty, rows=tuple(replace(thrifty.rows[0], title=f"row {i}") for i in range(len(COLOURS) + 2)))
    none = replace(thrifty, rows=())
    for folder, record in {"thrifty-mnist": many, "sprout-mnist": none, "table1-paper": none}.items():
        (tmp_path / "results" / folder).mkdir(parents=True)
        save_record(record, tmp_path / "results" / folder)
    named: list[str] = []

    def name_lines(axes: Any, ends: Iterator[tuple[float, str, str]]) -> None:
        named.extend(name for _, name, _ in ends)

    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "name_lines", name_lines)
    script.draw("mnist", tmp_path / "thrift.png")
    titles = [row.title for row in many.rows]
    assert named == titles[: len(COLOURS)] + [f"{title} (dashed)" for title in titles[len(COLOURS) :]]
    assert (tmp_path / "thrift.png").read_bytes().startswith(b"\x89PNG")
