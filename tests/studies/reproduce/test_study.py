"""Studies: rows of one's own from a file, made as the paper's tables are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from feddst.data import Dataset
from feddst.data.config import SOURCES
from feddst.errors import CheckpointError, OptionError
from feddst.options import flatten, updated
from feddst.runtime import presets, run
from feddst.runtime.config import config_of
from feddst.runtime.loop import Silent
from feddst.runtime.presets import TABLES, Table, row_options, table_rows
from feddst.runtime.storage import RunDirectory
from feddst.studies.reproduce import Record, StudyConfig, reproduce
from feddst.studies.reproduce.carry_out import command
from feddst.studies.reproduce.record import load_record
from feddst.studies.reproduce.table import differences, markdown, partial

from .conftest import SMALL, Listener

STUDY = """
title = "Two masks"
caps = [0.0005, 0.001]
against = "static"
[options]
sparsity.level = 0.7
data.held_out = 40
[rows.static]
title = "A mask that stays"
options = { method = "randommask" }
[rows.moving]
title = "A mask that moves"
options = { method = "feddst", readjust.until = 50 }
"""
CAPS = "caps = [0.0005, 0.001]"
OTHERS = {name: value for name, value in SMALL.items() if not name.startswith("readjust")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "masks.toml"
    path.write_text(STUDY)
    return path


def asked(file: Path, **values: Any) -> StudyConfig:
    return updated(StudyConfig(str(file)), {"seeds": 2, "first_seed": 7, "engine.workers": 1, **values})


def play(config: StudyConfig, out: Path, data: Dataset, rounds: int = 10**9) -> Record:
    return reproduce(config, out=out, data=data, changes=OTHERS, overseer=Listener(rounds))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_papers_tables_are_studies_like_any_other(table: Table) -> None:
    config = StudyConfig(str(Path(presets.__file__).parent / "paper" / f"{table.name}.toml"))
    config.check()
    assert (config.title, config.upload_caps, config.dataset) == (table.title, table.caps, table.dataset)
    assert config.all_rows() == table_rows(table, published=False)
    for row in config.all_rows():
        made = flatten(config_of(config.options(row)))
        preset = row_options(table, row, published=False)
        assert {name: made[name] for name in preset if name != "rounds"} == {
            name: value for name, value in preset.items() if name != "rounds"
        }


def test_the_rows_of_a_study_are_made_with_the_seeds_asked_for(
    file: Path, tmp_path: Path, small_mnist: Dataset
) -> None:
    config = asked(file, rounds=4)
    record = play(config, tmp_path / "out", small_mnist)
    assert [(row.name, [run.seed for run in row.runs]) for row in record.rows] == [
        ("static", [7, 8]),
        ("moving", [7, 8]),
    ]
    assert record.complete(["static", "moving"], range(7, 9))
    assert not record.complete(["static"], [0])
    assert record.rows[0].config["data.held_out"] == 40
    assert (record.target, record.reading, record.compared) == ("study", "masks", (("moving", "static"),))
    assert ", tested on 40 images held out, with " in markdown(record)
    assert "; Two masks. Best mean" in markdown(record)
    assert "; study masks. Best mean" in markdown(replace(load_record(tmp_path / "out"), title=""))
    assert "; study paper. Best mean" in markdown(replace(record, title="", reading="paper"))
    assert differences(record)[1][0] == "A mask that moves − A mask that stays"


def test_a_study_goes_on_where_it_stopped(file: Path, tmp_path: Path, small_mnist: Dataset) -> None:
    whole = play(asked(file, rounds=4), tmp_path / "whole", small_mnist)
    play(asked(file, rounds=4), tmp_path / "parts", small_mnist, rounds=5)
    parts = play(asked(file, rounds=4), tmp_path / "parts", small_mnist)
    for one, other in zip(whole.rows, parts.rows, strict=True):
        assert [[p.score for p in run.rows] for run in one.runs] == [[p.score for p in run.rows] for run in other.runs]


def test_seeds_that_only_some_rows_have_are_missing_in_the_others(
    file: Path, tmp_path: Path, small_mnist: Dataset
) -> None:
    play(asked(file, rounds=1, rows=("static",)), tmp_path / "out", small_mnist)
    record = play(asked(file, rounds=1, rows=("moving",), first_seed=9), tmp_path / "out", small_mnist)
    assert (record.seeds, record.missing) == (4, 4)
    assert partial(record) == "Partial: 4 of 8 runs not finished."
    again = play(asked(file, rounds=1, seeds=4), tmp_path / "out", small_mnist)
    assert (again.seeds, again.missing, partial(again)) == (4, 0, "")


def test_a_study_may_get_rows_but_not_lose_those_it_has_runs_of(
    file: Path, tmp_path: Path, small_mnist: Dataset
) -> None:
    whole = file.read_text()
    play(asked(file, rounds=1, seeds=1), tmp_path / "out", small_mnist)
    before = (tmp_path / "out/record.json").read_bytes()
    file.write_text(whole.replace("[rows.moving]", "[rows.other]"))
    with pytest.raises(CheckpointError, match=r"out holds runs of other rows, moving: .* with --out"):
        play(asked(file, rounds=1, seeds=1), tmp_path / "out", small_mnist)
    assert (tmp_path / "out/record.json").read_bytes() == before
    file.write_text(whole + '[rows.third]\noptions = { method = "fedavgm" }\n')
    assert len(play(asked(file, rounds=1, seeds=1), tmp_path / "out", small_mnist).rows) == 3


def test_rows_with_copies_and_without_share_the_images_loaded(
    file: Path, tmp_path: Path, small_mnist: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: small_mnist)
    file.write_text(STUDY.replace('method = "randommask"', 'method = "randommask", data.augmentation = 2'))
    config = asked(file, rounds=1, seeds=1)
    record = reproduce(config, out=tmp_path / "out", changes=OTHERS, overseer=Listener())
    assert [row.config["data.augmentation"] for row in record.rows] == [2, 1]
    assert record.missing == 0


def test_a_row_may_name_the_one_it_is_compared_with(file: Path, tmp_path: Path, small_mnist: Dataset) -> None:
    third = '[rows.third]\nagainst = "moving"\noptions = { method = "randommask", local.lr = 0.02 }\n'
    file.write_text(STUDY + third)
    record = play(asked(file, rounds=1, seeds=1), tmp_path / "out", small_mnist)
    assert record.compared == (("moving", "static"), ("third", "moving"))
    assert load_record(tmp_path / "out").compared == record.compared
    assert [line[0] for line in differences(record)[1:]] == [
        "A mask that moves − A mask that stays",
        "third − A mask that moves",
    ]
    file.write_text((STUDY + third).replace('against = "static"', ""))
    assert asked(file).compared == (("third", "moving"),)
    file.write_text(STUDY + third.replace('"moving"', '"movin"'))
    with pytest.raises(OptionError, match=r"rows.third: against must be one of static, moving, third, got 'movin'"):
        asked(file).check()


def test_rows_begin_with_a_preset_and_change_it(file: Path) -> None:
    file.write_text(STUDY.replace("caps", 'preset = "thrifty"\ncaps', 1))
    config = asked(file)
    static, moving = (config.run_config(row, 7) for row in config.all_rows())
    assert (static.method, moving.method) == ("randommask", "feddst")
    assert static.sparsity.level == 0.7
    assert static.wire.values == moving.wire.values == "top16"
    assert (static.rounds, static.cap_gib) == (0, 0.001)
    file.write_text(STUDY.replace("caps", 'preset = "thrift"\ncaps', 1))
    with pytest.raises(OptionError, match=r"unknown preset 'thrift'.*thrifty"):
        asked(file).check()


@pytest.mark.parametrize("kind", ["reference", "stacked"])
def test_rows_may_differ_in_how_data_are_divided(kind: str, file: Path, tmp_path: Path, small_mnist: Dataset) -> None:
    file.write_text(
        STUDY.replace('method = "randommask"', 'method = "randommask", data.augmentation = 3').replace(
            "[options]", "[options]\ndata.augmentation = 2"
        )
    )
    config = asked(file, rounds=1, **{"engine.kind": kind})
    record = play(config, tmp_path / "study", small_mnist)
    assert " versions of each image" not in record.data
    for row in config.all_rows():
        alone = run(config.run_config(row, 8, OTHERS), data=small_mnist, out=tmp_path / row.name, watcher=Silent())
        assert alone.config.data.augmentation == (3 if row.name == "static" else 2)
        there, here = (
            load_file(path / "checkpoint.safetensors")
            for path in (tmp_path / "study" / f"{row.name}-seed8", tmp_path / row.name)
        )
        error = 1e-5 if kind == "stacked" else 0.0  # some processors round otherwise where models are stacked
        torch.testing.assert_close(there, here, rtol=error, atol=error)


def test_caps_end_the_runs(file: Path) -> None:
    config = asked(file)
    row = config.all_rows()[1]
    run = config.run_config(row, 7)
    assert (run.method, run.cap_gib, run.rounds, run.seed, run.readjust.until) == ("feddst", 0.001, 0, 7, 50)
    assert command(config) == f"feddst study {file} --seeds 2 --first_seed 7 --engine.workers 1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((CAPS, "caps = []"), "masks.toml: caps must be a list of GiB above 0, each above the one before it, got []"),
        ((CAPS, "caps = [-1]"), "caps must be"),
        ((CAPS, "caps = [0.1, inf]"), "caps must be"),
        ((CAPS, "caps = [nan]"), "caps must be"),
        ((CAPS, "caps = [0.2, 0.1]"), "caps must be"),
        ((CAPS, "caps = [true]"), "caps must be"),
        (('"Two masks"', "2"), "masks.toml: title must be text, got 2"),
        (('"A mask that stays"', "[]"), "masks.toml: rows.static: title must be text, got []"),
        (("against =", 'preset = ["quick"]\nagainst ='), "masks.toml: preset must be text, got ['quick']"),
        (('"static"\n[opt', '["static"]\n[opt'), "masks.toml: against must be text, got ['static']"),
        (('title = "A mask that stays"', "against = 1"), "masks.toml: rows.static: against must be text, got 1"),
        (("[rows.moving]", '[rows."../up"]'), "a dot not first, got '../up'"),
        (("[rows.moving]", "[rows.'.hidden']"), "a dot not first, got '.hidden'"),
        (('method = "feddst"', 'method = "feddst", local.lr = -1'), "masks.toml: rows.moving: local.lr must be"),
        (('method = "feddst"', 'method = "snip"'), "masks.toml: rows.moving: readjust.until has no effect on snip"),
        (("sparsity.level = 0.7", "local.lr = -1"), "masks.toml: options: local.lr must be"),
        (('"feddst"', '"feddst", accounting = "paper"'), "rows.moving: options: accounting is for all rows"),
        (('"feddst"', '"feddst", data.clients = 9'), "rows.moving: options: data.clients is for all rows"),
        (('"feddst"', '"feddst", data.partition = "iid"'), "rows.moving: options: data.partition is for all rows"),
        (("against = ", "agianst = "), "unknown key 'agianst'; did you mean 'against'?"),
        (('"static"\n[opt', '"sttic"\n[opt'), "against must be one of static, moving, got 'sttic'"),
        (("sparsity.level", "sparsty.level"), "sparsty.level"),
        (("sparsity.level = 0.7", "sparsity.level = 2"), "sparsity.level must be"),
        (("sparsity.level = 0.7", "seed = 3"), "seed is not a study's to set"),
        (('method = "randommask"', 'method = "randommask", readjust.until = 5'), "readjust.until has no effect"),
        (('method = "randommask"', 'method = "randomask"'), "did you mean 'randommask'?"),
        (('method = "randommask"', "data.held_out = 5"), "data.held_out is for all rows: put it under [options]"),
        (("[rows.static]", "[rows.static"), "is not valid TOML"),
        (('title = "A mask that stays"', 'titel = "A"'), "rows.static: unknown key 'titel'"),
        (("data.held_out = 40", "engine.kind = 'stacked'"), "engine.kind is not a study's to set"),
    ],
)
def test_what_a_file_may_not_say(file: Path, change: tuple[str, str], said: str) -> None:
    assert STUDY.count(change[0]) == 1
    file.write_text(STUDY.replace(*change))
    with pytest.raises(OptionError) as error:
        asked(file).check()
    assert said in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot read study .*: No such file"):
        StudyConfig(str(tmp_path / "none.toml")).check()


def test_a_record_has_the_other_metrics_of_its_runs(tmp_path: Path) -> None:
    file = tmp_path / "numbers.toml"
    options = 'local.objective = "squared-error"\nmetric = "mae"\ndata.partition = "iid"'
    file.write_text(f'caps = [1]\n[options]\n{options}\n[rows.dense]\noptions = {{ method = "fedavg" }}\n')
    inputs = torch.randn(48, 5)
    numbers = Dataset.from_arrays(train=(inputs, inputs[:, :1]), test=(inputs[:9], inputs[:9, :1]), name="numbers")
    few = {"data.clients": 2, "data.images_per_class": 8, "cohort.size": 1, "local.epochs": 1}
    config = asked(file, seeds=1, rounds=1)
    record = reproduce(config, out=tmp_path / "out", data=numbers, changes=few, overseer=Listener())
    [point] = record.rows[0].runs[0].rows
    [row] = RunDirectory(tmp_path / "out" / "dense-seed7").rows()
    assert (point.metric.name, point.score) == ("mae", row.value("mae"))
    assert point.others == row.others
    assert {"rmse", "r2"} <= set(point.others)
    assert load_record(tmp_path / "out") == record
