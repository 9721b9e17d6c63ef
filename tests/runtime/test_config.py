"""The run config: contradictions are refused, options go to the methods that have them, TOML says the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from feddst.core import InitialModel, Layer
from feddst.errors import OptionError
from feddst.methods import METHODS, Card, FedAvg, FedDST, LGFedAvg
from feddst.options import dotted, updated
from feddst.runtime import RunConfig, toml
from feddst.runtime.config import config_of, differences, make_method, refuse_ineffective


def configured(**changes: Any) -> RunConfig:
    return updated(RunConfig(), {name.replace("__", "."): value for name, value in changes.items()})


def test_every_method_can_be_made_and_checked() -> None:
    for name, kind in METHODS.items():
        config = configured(method=name)
        config.check()
        assert type(make_method(config)) is kind


def test_methods_get_their_groups_and_keep_their_pins() -> None:
    dst = make_method(configured(sparsity__level=0.9, readjust__alpha=0.2, local__lr=0.5))
    assert isinstance(dst, FedDST)
    assert (dst.sparsity.level, dst.readjust.alpha, dst.local.lr, dst.local.momentum) == (0.9, 0.2, 0.5, 0.9)
    plain = make_method(configured(method="fedavg"))
    assert isinstance(plain, FedAvg)
    assert plain.local.momentum == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "fedst"}, "method must be one of fedavg, .*, got 'fedst'; did you mean 'feddst'?"),
        ({"rounds": 0}, "the run would never stop"),
        ({"cohort__size": 401}, r"cohort.size must be at most data.clients \(400\), got 401"),
        ({"readjust__after_epoch": 11}, r"readjust.after_epoch must be at most local.epochs \(10\), got 11"),
        ({"data__shift_only": True}, r"data.shift_only has no effect with data.augmentation 1"),
        ({"engine__device": "abacus"}, "engine.device must be cpu, cuda or cuda:N, got 'abacus'"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("?", r"\?")):
        configured(**changes).check()


@pytest.mark.parametrize("codec", ["top8", "top16", "top32"])
def test_no_gradient_travels_as_its_largest_values(codec: str) -> None:
    for method in ("snip", "grasp", "prunefl"):
        with pytest.raises(OptionError) as refused:
            configured(method=method, wire__values=codec).check()
        half = "" if method == "prunefl" else "float16, "
        allowed = f"one of float32, bfloat16, {half}q8, q4, q2"
        assert str(refused.value) == f"wire.values must be {allowed} for {method}, got {codec!r}"
    configured(method="feddst", wire__values=codec).check()
    configured(method="snip", wire__values="q2").check()
    configured(method="sprout", wire__values=codec).check()
    with pytest.raises(OptionError, match=r"wire.values must be one of float32, .*, q2 for sprout, got"):
        configured(method="sprout", sprout__where="gradient", wire__values=codec).check()


def test_no_squared_gradient_travels_as_float16() -> None:
    with pytest.raises(
        OptionError, match=r"wire.values must be one of .*, bfloat16, q8, .* for prunefl, got 'float16'"
    ):
        configured(method="prunefl", wire__values="float16").check()
    configured(method="prunefl", wire__values="float16", prunefl__importance="mean").check()
    configured(method="prunefl", wire__values="float16", prunefl__variant="published").check()


def test_what_clients_keep_is_not_sent_twice() -> None:
    kept = {"wire__values": "q4", "wire__feedback": True}
    configured(**kept).check()
    with pytest.raises(OptionError, match=r"with wire.feedback, cohort.sampling must be without-replacement, got"):
        configured(cohort__sampling="with-replacement", **kept).check()


def test_methods_say_whether_they_read_gradients() -> None:
    """What each asks for in its first rounds; votes have a codec of their own."""
    shapes = {"a.weight": (30, 40), "b.weight": (5, 30)}
    weights = {name: torch.ones(shape) for name, shape in shapes.items()}
    model = InitialModel(weights, tuple(Layer(name, shape) for name, shape in shapes.items()))
    for name in METHODS:
        method = make_method(configured(method=name, prunefl__layer_times="equal", prunefl__every=3))
        begun = method.init(model, 0)
        asked = [group for r in range(4) for group in method.plan(replace(begun, round=r), 0).groups]
        assert method.reads_gradients == any("gradient" in each for each in asked), name


def test_what_clients_keep_is_known_from_the_method_and_not_from_its_card() -> None:
    """A card is for readers: a method of somebody's own may leave what it says of a client's state at "nothing"."""
    assert {name for name, method in METHODS.items() if method.keeps_state} == {"lg-fedavg", "lotteryfl"}

    class Own(LGFedAvg):
        card = Card("mine")

    assert (Own.card.state, Own.keeps_state) == ("nothing", True)


def test_options_without_effect_are_refused() -> None:
    with pytest.raises(OptionError, match=r"readjust\.alpha has no effect on fedavg, randommask"):
        refuse_ineffective(runs_of("fedavg", "randommask"), {"readjust.alpha": 0.1})
    with pytest.raises(OptionError, match=r"local\.momentum is fixed at 0.0 by fedavg, got 0.9"):
        refuse_ineffective(runs_of("fedavg"), {"local.momentum": 0.9})
    refuse_ineffective(runs_of("fedavg", "feddst"), {"readjust.alpha": 0.1, "local.momentum": 0.5, "seed": 3})


def runs_of(*methods: str, **options: Any) -> list[RunConfig]:
    return [config_of({"method": method, **dotted(options)}) for method in methods]


@pytest.mark.parametrize(
    ("method", "option", "value", "why"),
    [
        ("feddst", "adaptive.lr", 0.1, "server.optimizer mean"),
        ("feddst", "server.momentum", 0.5, "server.optimizer mean"),
        ("fedadam", "server.lr", 0.5, "server.optimizer adam"),
        ("fedavgm-server", "adaptive.tau", 0.1, "server.optimizer momentum"),
        ("fedadam", "server.momentum", 0.5, "server.optimizer adam"),
        ("fedadagrad", "adaptive.beta2", 0.5, "server.optimizer adagrad"),
        ("feddst", "proximal.gradient", "detached", "proximal.mu 0"),
        ("fedavg", "local.nesterov", True, "local.momentum 0"),
        ("sign-sgd", "local.clip", 1.0, "clients that take no steps"),
    ],
)
def test_options_that_others_leave_idle_are_refused(method: str, option: str, value: Any, why: str) -> None:
    with pytest.raises(OptionError, match=rf"{option} has no effect on {method} with {why}"):
        refuse_ineffective(runs_of(method, **{option: value}), {option: value})


def test_options_that_others_bring_to_life_are_not() -> None:
    adam = {"server": {"optimizer": "adam"}, "adaptive": {"lr": 0.1}}
    refuse_ineffective(runs_of("feddst", **adam), {"adaptive.lr": 0.1, "server.optimizer": "adam"})
    refuse_ineffective(runs_of("fedadam", "feddst"), {"adaptive.lr": 0.1})
    refuse_ineffective(runs_of("fedprox"), {"proximal.gradient": "detached", "proximal.mu": 0.5})
    refuse_ineffective(runs_of("fedadagrad"), {"adaptive.beta1": 0.0})  # as it stands in its own config.toml
    with pytest.raises(OptionError, match=r"server\.optimizer is fixed at adam by fedadam, got yogi"):
        refuse_ineffective(runs_of("fedadam"), {"server.optimizer": "yogi"})
    with pytest.raises(OptionError, match=r"proximal\.mu has no effect on sign-sgd"):
        refuse_ineffective(runs_of("sign-sgd"), {"proximal.mu": 0.5})


def test_methods_of_the_literature_have_their_own_options() -> None:
    assert config_of({"method": "fedprox"}).proximal.mu == 1.0
    assert config_of({"method": "feddst"}).proximal.mu == 0.0
    for method, optimizer in {"fedavgm-server": "momentum", "fedadam": "adam", "feddst": "mean"}.items():
        made = make_method(updated(RunConfig(), {"method": method}))
        assert isinstance(made, FedAvg)
        assert made.server.optimizer == optimizer


def test_toml_says_the_same_in_both_directions(tmp_path: Path) -> None:
    config = configured(
        method="feddst", proximal__mu=0.5, local__lr=1e-5, model__dense=("conv1", "fc*"), data__root='a "b"\\c 🦎'
    )
    path = tmp_path / "config.toml"
    path.write_text(toml.dump(config, "a run"))
    assert updated(RunConfig(), toml.read(path)) == config
    path.write_text("rounds = 7\n[sparsity]\nlevel = 0.5\n[data]\nclients = 10\n")
    assert updated(RunConfig(), toml.read(path)) == configured(rounds=7, sparsity__level=0.5, data__clients=10)


@pytest.mark.parametrize(("text", "message"), [("rounds = ", "is not valid TOML"), (None, "cannot read config")])
def test_bad_files_are_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "bad.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OptionError, match=message):
        toml.read(path)


def test_only_how_far_a_run_goes_may_change() -> None:
    stored = RunConfig()
    assert differences(stored, configured(rounds=7, cap_gib=2.0, engine__workers=3)) == []
    assert differences(stored, configured(local__lr=0.5, seed=1)) == ["seed was 0, now 1", "local.lr was 0.01, now 0.5"]
