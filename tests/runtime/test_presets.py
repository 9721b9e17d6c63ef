from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feddst.errors import OptionError
from feddst.options import flatten
from feddst.runtime.config import config_of, refuse_ineffective
from feddst.runtime.presets import PRESETS, Preset, find_preset
from feddst.studies import CompareConfig
from feddst.studies.comparison import compare_config
from feddst.studies.reproduce import StudyConfig

RUNS = [preset for preset in PRESETS.values() if preset.command == "run"]
COMPARISONS = [preset for preset in PRESETS.values() if preset.command == "compare"]
TABLES = ("table1", "table2", "table3")
OTHERS = ("thrifty", "thrifty-cifar10", "shakespeare-feddst", "har-feddst", "fashion-mnist-feddst")
"""Presets of runs that are no rows of tables."""


def named(preset: Preset) -> str:
    return preset.name


@pytest.mark.parametrize("preset", RUNS, ids=named)
def test_a_run_preset_is_allowed_and_all_of_it_matters(preset: Preset) -> None:
    config = config_of(preset.options)
    config.check()
    refuse_ineffective([config], preset.options)


@pytest.mark.parametrize("preset", COMPARISONS, ids=named)
def test_a_comparison_preset_is_allowed_and_all_of_it_matters(preset: Preset) -> None:
    config = compare_config(preset.options)
    config.check()
    shared = {name: value for name, value in preset.options.items() if name not in ("methods", "caps")}
    refuse_ineffective([entry.config(config.base, 0, config.given) for entry in config.entries()], shared)
    assert config.base.cap_gib == max(config.caps)
    assert config.base.rounds == preset.options.get("rounds", 0)


def test_every_row_is_there_twice_and_every_figure() -> None:
    rows = ("fedavgm", "fedprox", "fedavgm-bfloat16", "randommask", "grasp", "prunefl", "feddst", "feddst+fedprox")
    readings = {"": rows, "-published": (*rows, "fedavgm-still")}
    expected = [f"{table}-{row}{suffix}" for table in TABLES for suffix, named in readings.items() for row in named]
    assert [preset.name for preset in RUNS] == [*OTHERS, *expected]
    sweeps = ("", "-alpha", "-sparsity", "-schedule", "-compatibility")
    both = [f"{table}{sweep}{suffix}" for table in TABLES for suffix in ("", "-published") for sweep in sweeps]
    assert [preset.name for preset in COMPARISONS] == ["quick", "methods", "shakespeare", "har", "fashion-mnist", *both]


@pytest.mark.parametrize("suffix", ["", "-published"])
@pytest.mark.parametrize("table", TABLES)
def test_a_comparison_runs_exactly_the_rows_of_its_table(table: str, suffix: str) -> None:
    config = compare_config(PRESETS[table + suffix].options)
    rows = [
        preset for preset in RUNS if preset.name.startswith(table) and ("-published" in preset.name) == bool(suffix)
    ]
    for entry, row in zip(config.entries(), rows, strict=True):
        compared = flatten(entry.config(config.base, 0))
        assert {name: compared[name] for name in row.options} == dict(row.options)


@pytest.mark.parametrize("suffix", ["", "-published"])
@pytest.mark.parametrize("table", TABLES)
def test_the_compatibility_comparison_runs_rows_of_its_table(table: str, suffix: str) -> None:
    config = compare_config(PRESETS[f"{table}-compatibility{suffix}"].options)
    *entries, more = config.entries()
    names = ["fedavgm", "fedprox", "feddst", "feddst+fedprox", *(["fedavgm-still"] if suffix else [])]
    for entry, name in zip(entries, names, strict=True):
        compared, row = flatten(entry.config(config.base, 0)), PRESETS[f"{table}-{name}{suffix}"].options
        assert {option: compared[option] for option in row} == dict(row)
    assert (more.method, more.config(config.base, 0).proximal.mu) == ("randommask", 1.0)


# S, α, α with FedProx, ΔR, R_end and the largest cap, from the paper.
SETTINGS: dict[str, tuple[float, float, float, int, int, float]] = {
    "table1": (0.8, 0.05, 0.05, 10, 200, 4.0),
    "table2": (0.8, 0.001, 0.01, 15, 1000, 16.0),
    "table3": (0.5, 0.01, 0.01, 10, 4000, 32.0),
}


@pytest.mark.parametrize("suffix", ["", "-published"])
@pytest.mark.parametrize("table", TABLES)
def test_the_settings_are_the_papers(table: str, suffix: str) -> None:
    level, alpha, alpha_prox, every, until, cap = SETTINGS[table]
    for name, expected in (("feddst", alpha), ("feddst+fedprox", alpha_prox)):
        config = config_of(PRESETS[f"{table}-{name}{suffix}"].options)
        assert config.sparsity.level == level
        assert (config.readjust.alpha, config.readjust.every, config.readjust.until) == (expected, every, until)
        assert (config.cap_gib, config.rounds, config.eval_every) == (cap, 0, 5)
        assert (config.cohort.size, config.data.clients) == (20, 400)
        assert (config.local.epochs, config.local.batch, config.local.lr) == (10, 32, 0.01)
        assert (config.local.momentum, config.local.l2) == (0.9, 0.001)
        assert config.proximal.mu == (1.0 if "prox" in name else 0.0)


@pytest.mark.parametrize(("preset", "table"), [("thrifty", "table1"), ("thrifty-cifar10", "table2")])
def test_thrift_is_far_less_than_a_hundredth_of_the_papers_upload_for_the_same_clients(preset: str, table: str) -> None:
    thrifty = config_of(PRESETS[preset].options)
    paper = config_of(PRESETS[f"{table}-feddst"].options)
    assert thrifty.cap_gib == paper.cap_gib / 400
    assert thrifty.accounting == "measured"
    given = {"augmentation": 1, "shift_only": False}
    assert replace(thrifty.data, **given) == replace(paper.data, **given)  # type: ignore[arg-type]


def changes(published: str, paper: str) -> dict[str, Any]:
    old = flatten(config_of(PRESETS[paper].options))
    new = flatten(config_of(PRESETS[published].options))
    return {name: new[name] for name in old if new[name] != old[name]}


def test_the_published_feddst_differs_by_its_quirks_and_nothing_else() -> None:
    quirks = {
        "accounting": "published",
        "cohort.sampling": "with-replacement",
        "growth.grow_from": "any",
        "growth.images": "last-batch",
        "growth.weights": "unpruned",
        "local.order": "fixed",
        "local.weigh_by": "batches",
        "model.head": "softmax",
        "readjust.counting": "published",
        "readjust.decay": "constant",
        "readjust.dropped": "resolved",
        "sparsity.distribution": "erk-published",
    }
    assert changes("table1-feddst-published", "table1-feddst") == quirks | {"data.partition": "shards"}
    assert changes("table3-feddst-published", "table3-feddst") == quirks  # its partition is Dirichlet's in both
    prox = quirks | {"data.partition": "shards", "proximal.gradient": "detached"}
    assert changes("table2-feddst+fedprox-published", "table2-feddst+fedprox") == prox


@pytest.mark.parametrize("table", TABLES)
def test_the_published_dense_rows_readjust(table: str) -> None:
    for name, mu in (("fedavgm", 0.0), ("fedprox", 1.0)):
        config = config_of(PRESETS[f"{table}-{name}-published"].options)
        assert (config.method, config.proximal.mu) == ("feddst", mu)
        assert (config.sparsity.level, config.readjust.alpha, config.readjust.every) == (0.0, 0.5, 10)
        assert "readjusts here too" in PRESETS[f"{table}-{name}-published"].summary


def test_the_quick_look_compares_three_methods_on_shards() -> None:
    config: CompareConfig = compare_config(PRESETS["quick"].options)
    assert config.methods == ("fedavgm", "randommask", "feddst")
    assert (config.base.data.dataset, config.base.data.partition) == ("mnist", "shards")
    # A sparse round costs about 4.0 MiB, so that FedDST readjusts at least twice before the cap.
    assert config.base.cap_gib * 1024 / 4.1 > 2 * config.base.readjust.every


@pytest.mark.parametrize("name", ["shakespeare", "har", "fashion-mnist"])
def test_other_tasks_are_compared_by_methods_that_are_run_alike(name: str) -> None:
    together, alone = dict(PRESETS[name].options), dict(PRESETS[f"{name}-feddst"].options)
    dense, *sparse = together.pop("methods")
    assert (dense.partition(":")[0], sparse) == ("fedavgm", ["randommask", "feddst", "sprout"])
    assert max(together.pop("caps")) == alone.pop("cap_gib")
    assert alone.pop("method") == "feddst"
    assert {option: value for option, value in together.items() if not option.startswith("sprout.")} == alone
    assert alone["data.dataset"] == name


@pytest.mark.parametrize("name", ["har", "fashion-mnist"])
def test_the_studies_of_other_tasks_are_their_presets(name: str) -> None:
    study = StudyConfig(str(Path(__file__).parents[2] / "studies" / f"{name}.toml"))
    compared = compare_config(PRESETS[name].options)
    assert study.upload_caps == compared.caps
    for row, entry in zip(study.all_rows(), compared.entries(), strict=True):
        run, same = flatten(study.run_config(row, 0)), flatten(entry.config(compared.base, 0, compared.given))
        apart = {option for option in run if run[option] != same[option]} - {"checkpoint_every"}
        assert all(option.startswith("sprout.") and entry.method != "sprout" for option in apart)


def test_an_unknown_preset_is_refused_with_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"^unknown preset 'table1-fedst'; did you mean 'table1-feddst'\?$"):
        find_preset("table1-fedst")


def test_fedavgm_never_readjusted_is_fedavgm_in_everything_else_that_the_published_code_does() -> None:
    usual, still = PRESETS["table1-fedavgm-published"].options, PRESETS["table1-fedavgm-still-published"].options
    assert [usual[name] for name in ("method", "readjust.alpha", "sparsity.level")] == ["feddst", 0.5, 0.0]
    assert still["method"] == "fedavgm"
    assert all(still[name] == usual[name] for name in still if name != "method")
    assert still["model.head"] == "softmax"
