"""Rows of a table that are rows of a figure too."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feddst.errors import CheckpointError, OptionError
from feddst.options import updated
from feddst.studies.reproduce import Record, ReproduceConfig, load_record
from feddst.studies.reproduce.borrow import borrowed, main
from feddst.studies.reproduce.join import joined
from feddst.studies.reproduce.record import plain_options, save_record


def configured(record: Record, **changes: Any) -> Record:
    """The record with the options that its table's rows have; `changes` are options that FedDST has otherwise."""
    table = ReproduceConfig(record.target)
    known = {row.name: plain_options(table.run_config(row, 0)) for row in table.all_rows()}
    own = {name.replace("__", "."): value for name, value in changes.items()}
    rows = (replace(row, config=known[row.name] | (own if row.name == "feddst" else {})) for row in record.rows)
    return replace(record, rows=tuple(rows))


@pytest.mark.parametrize(
    ("figure", "name"),
    [
        ("compatibility", "feddst"),
        ("alpha", "alpha=0.05"),
        ("sparsity", "sparsity=0.8"),
        ("schedule", "schedule=10"),  # the last epoch, which is what a table does not say
    ],
)
def test_the_row_that_is_run_for_run_the_tables_is_taken_and_no_other(by_hand: Record, figure: str, name: str) -> None:
    found = borrowed(configured(by_hand), figure)
    asked = ReproduceConfig(figure)
    assert [row.name for row in found.rows] == [row.name for row in asked.all_rows()]
    [taken] = [row for row in found.rows if row.runs]
    assert taken.name == name
    assert [run.rows for run in taken.runs] == [run.rows for run in by_hand.rows[1].runs]
    assert {run.label for run in taken.runs} == {name}
    assert (found.target, found.usual, found.compared) == (figure, asked.usual_row, asked.compared)
    assert (found.symbol, found.made, found.command) == (asked.varied[1], by_hand.made, by_hand.command)


def test_what_is_made_with_other_options_is_not_taken(by_hand: Record) -> None:
    assert borrowed(configured(by_hand, cap_gib=1.0, engine__kind="stacked"), "compatibility").row("feddst")
    with pytest.raises(CheckpointError, match="the record of table1 has no runs of compatibility"):
        borrowed(configured(by_hand, growth__grow_from="any"), "compatibility")
    assert borrowed(configured(by_hand, readjust__alpha=0.1), "alpha").row("alpha=0.05") is None
    assert borrowed(configured(by_hand, readjust__after_epoch=9), "schedule").row("schedule=9") is not None


def test_it_is_joined_with_what_the_figure_has_besides(by_hand: Record) -> None:
    taken = borrowed(configured(by_hand), "schedule")
    asked = updated(ReproduceConfig("schedule"), {"caps": (0.5, 1.0)})
    nine = next(row for row in taken.rows if row.name == "schedule=9")
    config = plain_options(asked.run_config(asked.all_rows()[4], 0))
    more = replace(taken, caps=asked.caps, rows=(replace(nine, config=config, runs=by_hand.rows[0].runs),))
    found = joined([taken, more])
    assert [row.name for row in found.rows if row.runs] == ["schedule=9", "schedule=10"]
    assert found.caps == (0.5, 1.0, 2.0, 3.0, 4.0)


def test_figures_and_tables_are_told_apart(by_hand: Record) -> None:
    with pytest.raises(OptionError, match=r"FIGURE must be one of alpha, .*, got 'table1'"):
        borrowed(configured(by_hand), "table1")
    with pytest.raises(CheckpointError, match="from the record of a table, got one of alpha"):
        borrowed(borrowed(configured(by_hand), "alpha"), "alpha")
    with pytest.raises(OptionError, match=r"on must be one of mnist, cifar10, as the paper shows alpha there"):
        borrowed(replace(configured(by_hand), target="table3"), "alpha")


def test_the_command_writes_a_record_and_overwrites_none(
    by_hand: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table").mkdir()
    save_record(configured(by_hand), tmp_path / "table")
    words = [str(tmp_path / "out"), "compatibility", str(tmp_path / "table")]
    assert main(words) == 0
    assert load_record(tmp_path / "out") == borrowed(configured(by_hand), "compatibility")
    assert "| RandomMask + FedProx (μ = 1) | " in (tmp_path / "out/table.md").read_text()
    assert main(words) == 2
    assert "out is not empty" in capsys.readouterr().err
    assert main(words[:2]) == 2
    assert "usage" in capsys.readouterr().err
