"""Which runs are found, which of them belong together, and what they are called."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from feddst.errors import CheckpointError, OptionError
from feddst.report.content import collect, content
from feddst.report.sources import as_paths, find
from feddst.runtime.storage import RunDirectory

from .conftest import MakeRun, detail

Unseal = Callable[[Path], RunDirectory]


def labels(*paths: Path) -> list[str]:
    return [entry.label for entry in collect(paths)[1]]


def test_runs_that_differ_in_the_seed_alone_are_one_entry(comparison: Path) -> None:
    _, entries = collect([comparison])
    assert [(entry.label, entry.seeds, entry.unfinished) for entry in entries] == [
        ("fedavgm", [0, 1], []),
        ("feddst", [0, 1], [1]),
        ("randommask", [0, 1], []),
    ]


def test_how_far_runs_go_does_not_part_them(make_run: MakeRun) -> None:
    one, two = make_run("one", [0.1], seed=0, rounds=1), make_run("two", [0.1], seed=1, rounds=9, checkpoint_every=3)
    assert labels(one, two) == ["feddst"]


def test_variants_of_a_method_are_named_by_what_differs(make_run: MakeRun) -> None:
    one = make_run("one", [0.1], readjust__alpha=0.01)
    two = make_run("two", [0.1], readjust__alpha=0.1, rounds=5)
    other = make_run("other", [0.1], method="fedavgm", sparsity__level=0.5)
    assert labels(one, two, other) == ["feddst:readjust.alpha=0.01", "feddst:readjust.alpha=0.1", "fedavgm"]


def test_many_differences_are_cut_short(make_run: MakeRun) -> None:
    one = make_run("one", [0.1])
    two = make_run("two", [0.1], local__lr=0.5, local__batch=1, local__epochs=2, local__momentum=0.0)
    assert labels(one, two)[1] == "feddst:local.epochs=2:local.batch=1:local.lr=0.5:…"


def test_the_same_config_and_seed_made_twice_is_told_apart_by_its_place(make_run: MakeRun) -> None:
    one, two = make_run("a/run", [0.1]), make_run("b/run", [0.2])
    assert labels(one, two) == ["feddst in a", "feddst in b"]
    inner = make_run("a/run/again", [0.2])
    assert labels(one, inner) == [f"feddst in {one}", f"feddst in {inner}"]


def test_a_run_that_is_named_twice_counts_once(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("all/run", [0.1])
    assert len(collect([run, tmp_path / "all"])[1][0].runs) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_a_run_that_is_named_twice_keeps_the_name_that_its_comparison_gave_it(
    make_run: MakeRun, tmp_path: Path, order: int
) -> None:
    method = "feddst:readjust.alpha=0.01"
    run = make_run("all/feddst-readjust.alpha=0.01-seed0", [0.1], readjust__alpha=0.01)
    config = {"methods": [method], "seeds": [0], "caps": [], "base": {}}
    (tmp_path / "all/comparison.json").write_text(json.dumps({"config": config, "command": "", "data": ""}))
    assert labels(*[tmp_path / "all", run][::order]) == [method]


def test_a_comparison_gives_names_order_caps_and_command(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("all/fedavgm-seed0", [0.1], method="fedavgm")
    make_run("all/feddst-readjust.alpha=0.01-seed0", [0.1], readjust__alpha=0.01)
    make_run("all/feddst-seed0", [0.1])
    methods = ["feddst", "feddst:readjust.alpha=0.01", "fedavgm"]
    config = {"methods": methods, "seeds": [0], "caps": [0.5], "base": {}}
    content = {"config": config, "command": "feddst compare --caps 0.5", "data": "mnist"}
    (tmp_path / "all/comparison.json").write_text(json.dumps(content))
    source = find(tmp_path / "all")
    assert (source.caps, source.command, source.python) == ((0.5,), "feddst compare --caps 0.5", False)
    assert labels(tmp_path / "all") == methods


@pytest.mark.parametrize("text", ["{", "[]", '{"config": {"methods": ["nosuch"], "seeds": [], "caps": []}}'])
def test_a_damaged_comparison_is_one_error(make_run: MakeRun, tmp_path: Path, text: str) -> None:
    make_run("all/run", [0.1])
    (tmp_path / "all/comparison.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"comparison\.json is damaged"):
        find(tmp_path / "all")


def test_what_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"RUN must be .*, got .*, which holds no run"):
        find(tmp_path)
    with pytest.raises(OptionError, match="nowhere, which is no directory"):
        find(tmp_path / "nowhere")


def test_an_option_of_another_version_names_the_run(make_run: MakeRun) -> None:
    run = make_run("run", [0.1])
    (run / "config.toml").write_text("warp = 9\n")
    with pytest.raises(CheckpointError, match=r"run/config\.toml: unknown option 'warp'"):
        find(run)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-0.1", '"high"'])
def test_an_accuracy_that_is_none_names_run_and_round(make_run: MakeRun, unseal_run: Unseal, value: str) -> None:
    run = unseal_run(make_run("run", [0.1, 0.25])).path
    rows = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(rows.replace('"accuracy": 0.25', f'"accuracy": {value}'))
    with pytest.raises(CheckpointError, match=r"run is damaged: its accuracy after round 2 is"):
        find(run)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"active":20', '"active":"many"'),
        ('"entered":0', '"entered":1.5'),
        ('"name":"fc1.weight"', '"name":5'),
        ('"apart":null', '"apart":[]'),
        ('"rows":[[0.025', '"rows":[["x"'),
        ('"rows":[[0.025,', '"rows":[['),
        ('"clients":[0', '"clients":["0"'),
        ('"clients":[0,', '"clients":['),
    ],
)
def test_a_value_of_another_kind_in_the_details_is_one_error(
    make_run: MakeRun, unseal_run: Unseal, before: str, after: str
) -> None:
    run = unseal_run(make_run("run", [0.1], [detail(1)])).path
    stored = (run / "details.jsonl").read_text()
    assert before in stored
    (run / "details.jsonl").write_text(stored.replace(before, after, 1))
    with pytest.raises(CheckpointError, match=r"details\.jsonl.* is damaged"):
        find(run)


def test_one_path_is_enough_and_none_is_too_few(make_run: MakeRun) -> None:
    run = make_run("run", [0.1])
    assert as_paths(str(run)) == as_paths(run) == as_paths([run]) == [run]
    with pytest.raises(OptionError, match="report needs at least one RUN"):
        as_paths([])


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A reproduction of one row, with one run of two evaluations."""
    columns = {
        "round": [1, 2],
        "accuracy": [0.5, 0.6],
        "accuracy_worst": [0.1, 0.2],
        "accuracy_global": [None, None],
        "upload_bytes": [2**30, 2**31],
        "upload_bits": [2**32, 2**33],
        "download_bytes": [5, 6],
        "seconds": [1.0, 2.0],
    }
    run = {"seed": 3, "run": "feddst-seed3", "stopped_by": "", "cap_gib": 0.0, **columns}
    row = {"name": "feddst", "title": "FedDST", "value": None, "config": {"method": "feddst"}, "runs": [run]}
    about = {"target": "table1", "reading": "paper", "data": "MNIST", "command": "feddst reproduce table1", "made": []}
    content = {"format": 1, **about, "seeds": 1, "caps": [1.0], "accounting": "paper", "rows": [row]}
    (tmp_path / "table").mkdir()
    (tmp_path / "table/record.json").write_text(json.dumps(content))
    return tmp_path / "table"


def test_a_record_gives_titles_caps_and_curves(record: Path) -> None:
    source = find(record)
    assert (source.caps, source.data, source.command) == ((1.0,), "MNIST", "feddst reproduce table1")
    found = source.runs[0]
    assert (found.title, found.seed, found.finished, found.accounting) == ("FedDST", 3, False, "paper")
    assert [point.score for point in found.rows] == [0.5, 0.6]


def test_every_command_of_a_record_says_where_its_runs_are(record: Path) -> None:
    path, both = record / "record.json", ["feddst study x.toml --rows a", "feddst study x.toml --rows b"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": "; ".join(both)}))
    assert content([record])["commands"]["runs"] == [f"{command} --out {record}" for command in both]


def test_a_record_without_compute_or_parts_is_shown_with_what_it_has(record: Path) -> None:
    shown = content([record])
    assert [axis["key"] for axis in shown["axes"]] == ["measured", "formula", "rounds"]
    assert shown["axes"][1]["caps"] == [{"x": 1024, "label": "1 GiB"}]
    assert shown["table"]["lines"][1][1:4] == ["60.00", "60.00", "20.00"]  # two decimals, as in the record's own table
    assert "60.00 %" in shown["headline"][0]
    assert shown["entries"][0]["traffic"]["up"] == {"mask": 0, "values": 0, "header": 0, "other": 2**31}


def test_where_a_record_s_runs_are_there_too_they_say_more(record: Path, make_run: MakeRun) -> None:
    make_run("table/feddst-seed3", [0.1, 0.2, 0.3], [detail(1)], seed=3)
    found = find(record).runs[0]
    assert (found.title, found.finished, len(found.rows)) == ("FedDST", True, 3)
    assert found.details is not None
