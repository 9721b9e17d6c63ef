"""Records made apart, and made one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feddst.data import Dataset
from feddst.errors import CheckpointError
from feddst.studies.reproduce import Record, load_record
from feddst.studies.reproduce.join import joined, main
from feddst.studies.reproduce.record import Maker, commands, each_command, makers, save_record
from feddst.studies.reproduce.table import cell

from .conftest import recorded, row
from .test_carry_out import made, play, timeless


def test_rows_and_seeds_made_apart_are_as_made_together(small_mnist: Dataset, tmp_path: Path) -> None:
    whole = play(made(), tmp_path / "whole", small_mnist)
    parts = [
        play(made(rows=("feddst",)), tmp_path / "feddst", small_mnist),
        play(made(rows=("fedavgm",), seeds=1), tmp_path / "fedavgm-0", small_mnist),
        play(made(rows=("fedavgm",), seeds=1, first_seed=1), tmp_path / "fedavgm-1", small_mnist),
    ]
    assert timeless(joined(parts)) == timeless(whole)
    assert joined(parts).made[0].seconds == pytest.approx(sum(part.made[0].seconds for part in parts))


def test_of_a_run_made_twice_the_furthest_is_taken(by_hand: Record) -> None:
    longer = recorded("randommask", 1, [(0.5, 0.88), (1.5, 0.96), (2.5, 0.95), (3.5, 0.99), (4.0, 0.98)])
    other = replace(
        by_hand,
        command="feddst reproduce table1 --rows randommask",
        made=(Maker("abc", "a machine", "2.6", 3.0), Maker("def", "a machine", "2.6")),
        rows=(row("randommask", "RandomMask", longer),),
        caps=(2.0, 5.0),
    )
    for records in ([by_hand, other], [other, by_hand]):
        found = joined(records)
        assert found.row("randommask") == replace(by_hand.rows[0], runs=(by_hand.rows[0].runs[0], longer))
        assert found.row("feddst") == by_hand.rows[1]
        assert found.caps == (1.0, 2.0, 3.0, 4.0, 5.0)
        assert set(found.command.split("; ")) == {by_hand.command, other.command}
        assert set(found.made) == set(other.made)


def test_each_command_and_each_maker_is_named_once() -> None:
    one, two = "feddst study a.toml --data.root 'b; c'", "feddst study a.toml --rows x"
    assert commands(["", one, f"{two}; {one}"]) == f"{one}; {two}"
    assert each_command(f"{one}; {two}") == [one, two]
    first, second = Maker("abc", "a machine", "2.6", 3.0), Maker("def", "a machine", "2.6", 1.0)
    assert makers([first, second, first]) == (replace(first, seconds=6.0), second)


def test_of_runs_as_long_the_finished_one_is_taken(by_hand: Record) -> None:
    done = by_hand.rows[1]
    halted = replace(done, runs=tuple(replace(run, stopped_by="", cap_gib=0.0) for run in done.runs))
    for rows in ([done, halted], [halted, done]):
        assert joined([replace(by_hand, rows=(row,)) for row in rows]).rows == (done,)


def test_a_run_that_its_cap_has_ended_says_nothing_of_larger_caps(by_hand: Record) -> None:
    feddst = by_hand.rows[1]
    assert feddst.best(4.0) == {0: 98.0, 1: 99.0}
    assert feddst.best(5.0) == {}
    further = replace(by_hand, caps=(4.0, 5.0), rows=(feddst,))
    assert str(cell(further, feddst, 5.0)) == "–"
    assert (further.missing, replace(further, caps=(4.0,)).missing) == (2, 0)
    by_rounds = replace(feddst, runs=tuple(replace(run, stopped_by="rounds", cap_gib=0.0) for run in feddst.runs))
    assert by_rounds.best(5.0) == {0: 98.0, 1: 99.0}


def test_what_does_not_belong_together_is_not_joined(by_hand: Record) -> None:
    with pytest.raises(CheckpointError, match=r"data is 'MNIST, 400 clients .* and 'CIFAR-10' in another"):
        joined([by_hand, replace(by_hand, data="CIFAR-10")])
    feddst = by_hand.rows[1]

    def beside(**options: Any) -> Record:
        """A record of FedDST alone, with these options besides."""
        own = {name.replace("__", "."): value for name, value in options.items()}
        return replace(by_hand, rows=(replace(feddst, config={**feddst.config, **own}),))

    here = beside(engine__kind="native", cap_gib=1.0, rounds=3, prunefl__every=7, sparsity__level=0.8)
    for other in (
        beside(engine__kind="stacked", cap_gib=4.0, rounds=0, prunefl__every=8, sparsity__level=0.8),
        beside(sparsity__level=0.8),
        beside(),  # 0.8 is usual: what a record does not name was not an option when it was made
    ):
        assert joined([here, other]).rows == here.rows
    for other, words in (
        (beside(sparsity__level=0.9), r"row feddst has sparsity.level 0.8 in one and 0.9 in another"),
        (beside(sparsity__late=1), r"row feddst has sparsity.late 'nothing' in one and 1 in another"),
    ):
        with pytest.raises(CheckpointError, match=words):
            joined([here, other])
    unmade = replace(feddst, config={"method": "feddst", "sparsity.level": 0.9}, runs=())
    assert joined([here, replace(here, rows=(unmade,))]).rows == here.rows


def test_the_command_writes_a_record_and_overwrites_none(
    by_hand: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rows in (("a", by_hand.rows[:1]), ("b", by_hand.rows[1:])):
        (tmp_path / name).mkdir()
        save_record(replace(by_hand, rows=rows), tmp_path / name)
    words = [str(tmp_path / name) for name in ("out", "a", "b")]
    assert main(words) == 0
    assert load_record(tmp_path / "out") == by_hand
    assert "FedDST" in (tmp_path / "out/table.md").read_text()
    assert main(words) == 2
    assert "out is not empty" in capsys.readouterr().err
    assert main([str(tmp_path / name) for name in ("more", "a", "a")]) == 2
    assert "named twice" in capsys.readouterr().err
    assert main([str(tmp_path / name) for name in ("a/record.json/more", "a", "b")]) == 2
    assert "a/record.json/more" in capsys.readouterr().err
    assert main(words[:1]) == 2
    assert "usage" in capsys.readouterr().err
