"""docs/extend-method.md: its method runs in Python, on every engine and from the command line, as the page says."""

import dataclasses
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import feddst
from feddst import register
from feddst.cli.main import main
from feddst.clients.steps import Growth
from feddst.core import SparseSum, Update
from feddst.errors import OptionError
from feddst.export.card import command as run_command
from feddst.methods import METHODS, Card, FedAvg, FedDST, Method, OwnGroups
from feddst.models import initial_model
from feddst.options import flatten, option, updated
from feddst.plugins import load_plugins
from feddst.runtime import toml
from feddst.runtime.config import make_method, options_to_store
from feddst.sparsity import Sparsity
from feddst.studies.comparison import CompareConfig, compare_config
from feddst.studies.reports import command
from feddst.wire.header import SIZE

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1 --eval_every 1"


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-method")
    page.install(workshop)
    left = page.run()
    printed = capsys.readouterr().out
    assert "with 20% of the weights" in printed
    assert left["result"].config.method == "halfway"
    far, near = left["whole"].model.state_dict(), left["result"].model.state_dict()
    assert not all(torch.equal(far[name], near[name]) for name in far)
    share = left["uploads"]["halfmask"] / left["uploads"]["randommask"]
    assert 0.5 < share < 1
    assert f"{share:.0%} of RandomMask's upload" in printed


@pytest.mark.usefixtures("tiny_mnist")
def test_its_odd_clients_hold_half_and_send_as_much(code_page: Callable[[str], Any], workshop: Path) -> None:
    """Four clients take part in a round, on a network of one layer: 196·10 weights, of which 392 and 196 are kept."""
    code_page("extend-method").install(workshop)
    importlib.import_module("halfmask")
    small: dict[str, Any] = {
        "data": {"partition": "iid", "clients": 4, "images_per_class": 5},
        "cohort": {"size": 4},
        "local": {"epochs": 1},
        "engine": {"kind": "reference", "workers": 1},
    }

    def network() -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(196, 10))

    config = feddst.configure(method="halfmask", rounds=2, **small)
    run = feddst.run(config, model=network)
    first, second = (2 * (SIZE + 4 * (kept + 10)) for kept in (392, 196))
    assert run.rows[-1].upload_bytes == 2 * (first + second)
    assert int(run.masks["1.weight"].sum()) == 392

    method = make_method(config)
    state = method.init(initial_model(network()), config.seed)
    kept = [method.broadcast(state, client).masks["1.weight"] for client in range(4)]
    assert [int(mask.sum()) for mask in kept] == [392, 196] * 2
    assert kept[1] is kept[3]
    assert not (kept[1] & ~kept[0]).any()
    sizes = state.params["1.weight"].abs()
    assert sizes[kept[1]].min() >= sizes[kept[0] & ~kept[1]].max()
    # Nobody but the odd ones takes part: what they do not hold stays.
    total = SparseSum({"1.weight": kept[1]})
    total.add(Update(1, 1, 1, {"1.weight": torch.full((196,), 7.0), "1.bias": torch.zeros(10)}))
    after = method.aggregate(state, total).params["1.weight"]
    assert torch.equal(after, torch.where(kept[1], 7.0, state.params["1.weight"]))


@pytest.mark.usefixtures("tiny_mnist")
def test_its_commands_work_once_it_is_installed(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-method")
    page.install(workshop)
    load_plugins()
    calls = page.commands()
    assert [call[0] for call in calls] == ["methods", "options", "run", "compare"]
    outputs = []
    for call in calls:
        assert main([*call, *(SMALL.split() if call[0] in ("run", "compare") else [])]) == 0
        outputs.append(capsys.readouterr().out)
    assert "\nhalfway " in outputs[0]
    assert "--stride.share" in outputs[1]
    assert [line for line in outputs[3].splitlines() if line.startswith("halfway:stride.share=0.9 ")]
    [config] = workshop.glob("runs/*/config.toml")
    assert toml.read(config)["stride.share"] == 0.7


@pytest.mark.usefixtures("tiny_mnist")
def test_every_engine_carries_it_out_and_a_resumed_run_ends_alike(
    code_page: Callable[[str], Any], workshop: Path
) -> None:
    code_page("extend-method").install(workshop)
    load_plugins()
    small: dict[str, Any] = {
        "data": {"clients": 4, "images_per_class": 5},
        "cohort": {"size": 2},
        "local": {"epochs": 1},
    }

    def weights(out: str, rounds: int, kind: str = "native", **others: Any) -> dict[str, torch.Tensor]:
        engine = {"kind": kind, "workers": 1}
        config = feddst.configure(method="halfway", rounds=rounds, stride={"share": 0.3}, engine=engine, **small)
        return feddst.run(config, out=out, **others).model.state_dict()

    expected = weights("whole", 2)
    for kind in ("reference", "stacked"):
        for name, value in weights(kind, 2, kind).items():
            torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-4)
    weights("parts", 1)
    resumed = weights("parts", 2, resume=True)
    assert all(torch.equal(value, expected[name]) for name, value in resumed.items())


def test_its_option_is_checked_and_refused_for_others(code_page: Callable[[str], Any], workshop: Path) -> None:
    code_page("extend-method").install(workshop)
    load_plugins()
    with pytest.raises(OptionError, match=r"stride.share must be in \(0, 1\], got 1.5"):
        feddst.configure(method="halfway", stride={"share": 1.5})
    with pytest.raises(OptionError, match=r"stride\.share has no effect on feddst"):
        feddst.configure(method="feddst", stride={"share": 0.5})
    plain = feddst.RunConfig()
    assert flatten(plain)["stride.share"] == 0.5
    changed = updated(plain, {"stride.share": 0.25, "rounds": 3})
    assert (changed.group("stride").share, changed.rounds) == (0.25, 3)
    assert updated(changed, {"stride.share": 0.5, "rounds": plain.rounds}) == plain
    stored = [options_to_store(config) for config in (plain, changed, updated(plain, {"method": "halfway"}))]
    assert [options.get("stride.share") for options in stored] == [None, 0.25, 0.5]


@dataclass(frozen=True)
class Pace:
    """A group."""

    share: float = option(0.5, "a share")


@dataclass(frozen=True)
class Other(FedAvg):
    """A method with nothing wrong but what a test changes."""

    name: ClassVar[str] = "other"
    summary: ClassVar[str] = "another"
    card: ClassVar[Card] = Card("nobody")


@pytest.mark.usefixtures("workshop")
def test_what_cannot_be_registered() -> None:
    @dataclass(frozen=True)
    class Nameless(FedAvg):
        pass

    @dataclass(frozen=True)
    class Cohort(Other):
        name: ClassVar[str] = "cohort"
        summary: ClassVar[str] = "its group has the name of another"
        card: ClassVar[Card] = Card("nobody")
        engine: Pace = Pace()

    @dataclass(frozen=True)
    class Different(Other):
        name: ClassVar[str] = "different"
        summary: ClassVar[str] = "its sparsity is not ours"
        card: ClassVar[Card] = Card("nobody")
        sparsity: Pace = Pace()

    @dataclass(frozen=True)
    class Plain(Other):
        name: ClassVar[str] = "plain"
        summary: ClassVar[str] = "its option is in no group"
        card: ClassVar[Card] = Card("nobody")
        share: float = 0.5

    @dataclass(frozen=True)
    class Half(Other):
        name: ClassVar[str] = "half"
        summary: ClassVar[str] = "one of its groups can be declared"
        card: ClassVar[Card] = Card("nobody")
        tempo: Pace = Pace()
        flower: Pace = Pace()

    @dataclass(frozen=True)
    class Unspeakable(Other):
        name: ClassVar[str] = "two words"
        summary: ClassVar[str] = "its name cannot be typed"
        card: ClassVar[Card] = Card("nobody")

    with pytest.raises(TypeError, match="must be a class that implements"):
        register(Method)
    with pytest.raises(ValueError, match="a group of options cannot be called flower"):
        register(Half)
    assert OwnGroups.kinds == {}
    with pytest.raises(ValueError, match=r"the name of a method must be letters, .*, got 'two words'"):
        register(Unspeakable)
    with pytest.raises(TypeError, match="Nameless must say its own name and summary and card"):
        register(Nameless)
    with pytest.raises(ValueError, match="a group of options cannot be called engine"):
        register(Cohort)
    with pytest.raises(ValueError, match=re.escape(f"Different.sparsity must be the group {Sparsity}")):
        register(Different)
    with pytest.raises(TypeError, match="the group share must be a dataclass"):
        register(Plain)
    register(Other)
    with pytest.raises(ValueError, match="a method named other is registered already: Other"):
        register(Other)
    assert METHODS["other"] is Other


def at_random() -> Growth:
    """What nobody has to import to have it as a default."""
    return Growth(rule="random")


@dataclass(frozen=True)
class Wild(FedDST):
    """FedDST with defaults of its own: one in each of two groups."""

    name: ClassVar[str] = "wild"
    summary: ClassVar[str] = "grows at random, at 90 %"
    card: ClassVar[Card] = Card("nobody")

    sparsity: Sparsity = Sparsity(level=0.9)
    growth: Growth = dataclasses.field(default_factory=at_random)


@pytest.mark.usefixtures("workshop")
def test_a_methods_own_default_counts_unless_an_option_is_set() -> None:
    register(Wild)

    def found(**options: Any) -> tuple[str, int, float]:
        method = make_method(feddst.configure(method="wild", **options))
        assert isinstance(method, Wild)
        return method.growth.rule, method.growth.max_images, method.sparsity.level

    assert found() == ("random", 1024, 0.9)
    assert found(growth={"max_images": 8}) == ("random", 8, 0.9)
    assert found(growth={"rule": "gradient"}, sparsity={"level": 0.8}) == ("gradient", 1024, 0.8)
    assert found(preset="table1-feddst-published") == ("random", 1024, 0.8)  # of these the preset sets the level
    assert feddst.configure(method="feddst").growth == Growth()


@pytest.mark.usefixtures("workshop", "tiny_mnist")
def test_the_command_line_and_files_hold_to_it_too(workshop: Path) -> None:
    register(Wild)
    (workshop / "own.toml").write_text('method = "wild"\ngrowth.rule = "gradient"\n')
    few = [*SMALL.split(), "--rounds", "1"]
    for name, words in (("usual", ["--method", "wild"]), ("file", ["--config", "own.toml"])):
        assert main(["run", *words, *few, "--out", name]) == 0
    rules = {name: toml.read(workshop / name / "config.toml")["growth.rule"] for name in ("usual", "file")}
    assert rules == {"usual": "random", "file": "gradient"}
    assert main(["run", "--resume", "--out", "usual", "--rounds", "2"]) == 0
    assert toml.read(workshop / "usual/config.toml")["growth.rule"] == "random"


@pytest.mark.usefixtures("workshop")
def test_each_of_those_compared_has_its_own_defaults() -> None:
    register(Wild)

    def rules(config: CompareConfig) -> list[str]:
        return [entry.config(config.base, 0, config.given).growth.rule for entry in config.entries()]

    methods = ("wild", "feddst", "wild:growth.rule=gradient")
    assert rules(compare_config({"methods": methods})) == ["random", "gradient", "gradient"]
    asked = compare_config({"methods": methods, "growth.rule": "gradient"})
    assert rules(asked) == ["gradient"] * 3
    assert command(asked).endswith("--growth.rule gradient")
    assert rules(CompareConfig(methods, base=feddst.configure(method="wild"))) == ["random", "gradient", "gradient"]


@pytest.mark.usefixtures("workshop")
def test_the_command_of_a_run_says_what_differs_from_its_methods_defaults() -> None:
    register(Wild)
    words: dict[str, Any] = {"growth": {"rule": "gradient"}, "sparsity": {"level": 0.8}}
    assert run_command(feddst.configure(method="wild")) == "feddst run --method wild"
    made = run_command(feddst.configure(method="wild", **words))
    assert made == "feddst run --method wild --sparsity.level 0.8 --growth.rule gradient"
