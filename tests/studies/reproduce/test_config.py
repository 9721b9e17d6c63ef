import pytest

from feddst.data import DataConfig
from feddst.errors import OptionError
from feddst.options import flatten, updated
from feddst.runtime.presets import PRESETS
from feddst.studies.reproduce.carry_out import command
from feddst.studies.reproduce.config import TARGETS, ReproduceConfig
from feddst.studies.reproduce.paper import PAPER
from feddst.studies.reproduce.request import Source

SWEEPS = ("alpha", "sparsity", "schedule")


def made(target: str, **values: object) -> ReproduceConfig:
    return updated(ReproduceConfig(target), {name.replace("__", "."): value for name, value in values.items()})


@pytest.mark.parametrize("reading", ["paper", "published"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_allowed_in_both_readings(target: str, reading: str) -> None:
    made(target, reading=reading).check()


@pytest.mark.parametrize("reading", ["paper", "published"])
@pytest.mark.parametrize("target", ["table1", "table2", "table3"])
def test_rows_run_as_their_presets_say_and_have_values_of_the_paper(target: str, reading: str) -> None:
    config = made(target, reading=reading)
    suffix = "-published" if reading == "published" else ""
    assert [row.name for row in config.all_rows()][:8] == list(PAPER[target])
    assert [row.name for row in config.all_rows()][8:] == (["fedavgm-still"] if suffix else [])
    for row in config.all_rows():
        run = flatten(config.run_config(row, 3))
        preset = PRESETS[f"{target}-{row.name}{suffix}"].options
        assert {name: run[name] for name in preset} == dict(preset)
        assert (run["seed"], run["checkpoint_every"]) == (3, 100)


@pytest.mark.parametrize(
    ("target", "on", "usual"),
    [
        ("alpha", "mnist", "alpha=0.05"),
        ("alpha", "cifar10", "alpha=0.001"),
        ("sparsity", "mnist", "sparsity=0.8"),
        ("sparsity", "cifar100", "sparsity=0.5"),
        ("schedule", "cifar10", "schedule=10"),
    ],
)
def test_a_sweep_goes_through_the_tables_own_value(target: str, on: str, usual: str) -> None:
    config = made(target, on=on)
    assert config.usual_row == usual
    assert config.run_config(config.all_rows()[0], 0).data.dataset == on


@pytest.mark.parametrize(("on", "table"), [("mnist", "table1"), ("cifar10", "table2"), ("cifar100", "table3")])
def test_the_compatibility_figure_has_rows_of_its_table_as_they_are_there(on: str, table: str) -> None:
    for reading, still in (("paper", []), ("published", ["fedavgm-still"])):
        figure, whole = made("compatibility", on=on, reading=reading), made(table, reading=reading)
        *rows, more = figure.all_rows()
        assert [row.name for row in rows] == ["fedavgm", "fedprox", "feddst", "feddst+fedprox", *still]
        assert (more.name, more.method) == ("randommask+fedprox", "randommask")
        known = {row.name: whole.run_config(row, 3) for row in whole.all_rows()}
        assert all(figure.run_config(row, 3) == known[row.name] for row in rows)
        assert figure.upload_caps == whole.upload_caps
        assert (figure.usual_row, figure.varied) == ("", ("", ""))
    mu = figure.run_config(more, 0).proximal.mu
    assert mu == 1.0


def test_the_compatibility_figure_compares_what_its_claim_is_about() -> None:
    claim, *others = made("compatibility").compared
    assert claim == ("feddst+fedprox", "fedprox")
    assert ("feddst+fedprox", "randommask+fedprox") in others
    still = ("feddst+fedprox", "fedavgm-still")
    assert still not in others
    assert still in made("compatibility", reading="published").compared
    for reading in ("paper", "published"):
        config = made("compatibility", reading=reading)
        names = {row.name for row in config.all_rows()}
        assert all(names.issuperset(pair) for pair in config.compared)
    assert made("table1").compared == made("alpha").compared == ()


def test_names_of_directories() -> None:
    assert made("table1").name == "table1-paper"
    assert made("table2", reading="published").name == "table2-published"
    assert [made("alpha", on=on).name for on in ("auto", "mnist", "cifar10")] == [
        "alpha-paper",
        "alpha-paper",
        "alpha-cifar10-paper",
    ]
    assert made("compatibility", on="cifar100", reading="published").name == "compatibility-cifar100-published"


@pytest.mark.parametrize("target", ["alpha", "compatibility"])
def test_a_figure_may_have_caps_of_its_own_and_its_runs_end_at_the_last(target: str) -> None:
    usual, low = made(target, on="cifar10"), made(target, on="cifar10", caps=(0.5, 2.0))
    assert usual.upload_caps == made("table2").upload_caps == (4.0, 8.0, 12.0, 16.0)
    assert low.upload_caps == (0.5, 2.0)
    for row in low.all_rows():
        assert low.run_config(row, 1) == updated(usual.run_config(row, 1), {"cap_gib": 2.0})
    assert command(low) == f"feddst reproduce {target} --on cifar10 --caps 0.5,2.0"


def test_the_command_has_what_differs_from_the_defaults_and_matters() -> None:
    config = made("table1", seeds=3, rows=("feddst", "fedavgm"), minutes=5.0, at_once=2, engine__kind="reference")
    assert command(config) == "feddst reproduce table1 --seeds 3 --rows feddst,fedavgm --engine.kind reference"


def test_a_copy_of_the_data_is_called_one() -> None:
    assert made("table2").describe_data() == "CIFAR-10, 400 clients (classes)"
    copy = made("table2", data__dataset="folder", data__root="/data/cifar10-jpeg.tar.xz", reading="published")
    assert copy.describe_data() == "CIFAR-10, from cifar10-jpeg.tar.xz, a JPEG copy, 400 clients (shards)"
    run = copy.run_config(copy.all_rows()[0], 0)
    assert (run.data.dataset, run.data.root) == ("folder", "/data/cifar10-jpeg.tar.xz")
    assert Source().root == DataConfig().root


@pytest.mark.parametrize(
    ("target", "values", "message"),
    [
        ("tabel1", {}, r"target must be one of table1, .*, got 'tabel1'; did you mean 'table1'\?"),
        (
            "table1",
            {"rows": ("fedavgm", "fedst")},
            r"rows must be among .*, got 'fedst'; did you mean 'feddst'",
        ),
        ("table1", {"rows": ("feddst", "feddst")}, "rows names feddst twice"),
        (
            "table1",
            {"on": "cifar10"},
            "on must be auto for table1, got 'cifar10': it is for alpha, sparsity, schedule, comp",
        ),
        (
            "alpha",
            {"on": "cifar100"},
            "on must be one of mnist, cifar10, as the paper shows alpha there, got",
        ),
        ("table1", {"caps": (1.0,)}, r"caps must be empty for table1, .*, got \[1\.0\]: they are for alpha, sparsity"),
        ("alpha", {"caps": (2.0, 1.0)}, r"caps must be GiB above 0, each above the one before it, got \[2\.0, 1\.0\]"),
        ("alpha", {"caps": (1.0, 1.0)}, r"caps must be GiB above 0, each above the one before it, got \[1\.0, 1\.0\]"),
        ("table1", {"data.dataset": "folder"}, r"data\.root must name an image directory"),
        ("table1", {"engine.device": "tpu"}, r"engine\.device must be cpu, cuda or cuda:N, got 'tpu'"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(target: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        updated(ReproduceConfig(target), values).check()


@pytest.mark.parametrize("values", [{"seeds": 0}, {"minutes": -1.0}, {"at_once": 0}, {"reading": "mine"}])
def test_bounds(values: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=f"^{next(iter(values))} must be"):
        updated(ReproduceConfig("table1"), values)
