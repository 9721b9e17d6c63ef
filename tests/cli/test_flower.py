"""`feddst flower …`, but for what starts processes."""

import importlib
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file

from feddst.cli import flower
from feddst.flower.config import Value
from feddst.flower.settings import app_options, app_values, read_run_config
from feddst.methods import METHODS, Card, LGFedAvg
from feddst.runtime.config import RunConfig

Call = Callable[..., Any]
ROOT = Path(__file__).parents[2]


def test_a_simulation_ends_as_a_run_does(feddst: Call, tmp_path: Path, small: str) -> None:
    assert feddst(f"run --rounds 3 {small} --out plain").code == 0
    outcome = feddst(f"flower simulate --rounds 3 {small} --out simulated")
    assert outcome.code == 0
    assert "feddst with 4 nodes of Flower (in-process); writing to simulated" in outcome.err
    assert "accuracy  best" in outcome.out
    plain, simulated = (tmp_path / name / "checkpoint.safetensors" for name in ("plain", "simulated"))
    assert plain.read_bytes() == simulated.read_bytes()


def test_a_simulation_can_be_taken_further(feddst: Call, tmp_path: Path, small: str) -> None:
    assert feddst(f"flower simulate --rounds 4 {small} --out whole").code == 0
    assert feddst(f"flower simulate --rounds 2 {small} --out parts").code == 0
    assert feddst("flower simulate --rounds 4 --resume --out parts").code == 0
    rows = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "parts")]
    assert len(rows[0]) == len(rows[1]) == 4
    config, _ = read_run_config(app_values())
    assert config.checkpoint_every == 1


@dataclass(frozen=True)
class OnesOwn(LGFedAvg):
    """A method of somebody's own, whose card says nothing of what clients keep."""

    name: ClassVar[str] = "ones-own"
    card: ClassVar[Card] = Card("nobody")


@pytest.mark.parametrize("method", ["lg-fedavg", "lotteryfl", "ones-own"])
def test_clients_that_keep_something_still_have_it_when_a_simulation_goes_on(
    method: str, feddst: Call, tmp_path: Path, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "ones-own", OnesOwn)
    assert feddst(f"flower simulate --method {method} --rounds 4 {small} --out whole").code == 0
    assert feddst(f"flower simulate --method {method} --rounds 2 {small} --out parts").code == 0
    assert feddst("flower simulate --rounds 4 --resume --out parts").code == 0
    whole, parts = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "parts"))
    for name in whole:
        if not name.startswith("bitmap"):
            assert torch.equal(whole[name], parts[name])


def test_checkpoints_are_written_every_round_unless_said_otherwise(feddst: Call, tmp_path: Path, small: str) -> None:
    small = small.replace(" --checkpoint_every 1", "")
    assert feddst(f"flower simulate --rounds 1 {small} --out every").code == 0
    assert "checkpoint_every = 1\n" in (tmp_path / "every" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("flower simulate --flower.deadline 0", "flower.deadline must be above 0, got 0"),
        ("flower simulate --flower.spair 1", "unknown option --flower.spair; did you mean --flower.spare?"),
        ("flower simulate --resume", "--resume needs --out"),
        ("flower simulate --backend grpc", "backend must be one of in-process, ray, got 'grpc'"),
        ("flower deploy-local --nodes 0", "nodes must be at least 1, got 0"),
        ("flower deploy-local --data.clients 4", "data.clients is what --nodes says"),
        ("flower app", "flower app needs a directory"),
        ("flower keys", "flower keys needs a directory"),
        ("flower keys k --hosts ,", "hosts must not be empty"),
        ("flower fly", "unknown command 'flower fly'"),
    ],
)
def test_bad_input(feddst: Call, tmp_path: Path, line: str, complaint: str) -> None:
    outcome = feddst(line)
    assert outcome.code == 2
    assert complaint in outcome.err
    assert not any(tmp_path.iterdir())


def test_without_flower_it_is_said_what_to_install(feddst: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower, "find_spec", lambda name: None)
    for line in ("flower simulate", "flower deploy-local", "flower app here", "flower keys here"):
        outcome = feddst(line)
        assert outcome.code == 2
        assert "pip install 'feddst[flower]'" in outcome.err


def test_the_app_has_a_key_for_every_option(feddst: Call, tmp_path: Path) -> None:
    outcome = feddst("flower app here")
    assert outcome.code == 0
    assert "flwr run here --stream --federation-config 'num-supernodes=10'" in outcome.out
    assert tomllib.loads((tmp_path / "here" / "pyproject.toml").read_text())["project"]["dependencies"] == []
    project = tomllib.loads((tmp_path / "here" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    flat = flattened(project["config"])
    assert list(flat) == [opt.name for opt in app_options()]
    config, app = read_run_config(flat)
    assert (config.data.clients, config.cohort.size, app.out) == (10, 10, "")
    for component in project["components"].values():
        module, _, name = component.partition(":")
        assert hasattr(importlib.import_module(module), name)
    before = (tmp_path / "here" / "pyproject.toml").read_text()
    assert feddst("flower app here").code == 2
    assert (tmp_path / "here" / "pyproject.toml").read_text() == before


def test_a_run_config_takes_lists_as_texts() -> None:
    config, app = read_run_config({"model.dense": "0.weight,2.weight", "flower.spare": 3})
    assert config == RunConfig(model=config.model)
    assert config.model.dense == ("0.weight", "2.weight")
    assert app.flower.spare == 3


def test_what_an_app_leaves_at_its_default_is_for_the_method_to_say() -> None:
    """An app names every option, `proximal.mu` too."""
    config, _ = read_run_config({**app_values(), "method": "fedprox"})
    assert config.proximal.mu == 1.0
    config, _ = read_run_config({**app_values(), "method": "fedprox", "proximal.mu": 0.5})
    assert config.proximal.mu == 0.5


def test_an_app_of_an_earlier_version_is_read(caplog: pytest.LogCaptureFixture) -> None:
    old: dict[str, Value] = {"averaged": 0.5, "server.beta": 0.9, "proximal.mu": 1.0, "method": "feddst+fedadam"}
    newer = ("ema", "server.optimizer", "server.momentum", "data.augmentation")
    values = {name: value for name, value in app_values().items() if name not in newer}
    config, _ = read_run_config({**values, **old, "data.copies": 2})
    assert (config.method, config.server.optimizer, config.ema) == ("feddst", "adam", 0.5)
    assert (config.proximal.mu, config.data.augmentation) == (0.0, 2)
    assert len(caplog.records) == 1


def test_an_app_with_a_former_method_is_told_what_it_trains_with(caplog: pytest.LogCaptureFixture) -> None:
    values: dict[str, Value] = {"method": "feddst+fedadam", "proximal.mu": 0.5}
    config, _ = read_run_config({**app_values(), **values})
    assert (config.method, config.server.optimizer, config.proximal.mu) == ("feddst", "adam", 0.5)
    [record] = caplog.records
    assert record.getMessage().endswith(": feddst+fedadam is feddst with server.optimizer adam now")


def test_keys_are_made_once(feddst: Call, tmp_path: Path) -> None:
    outcome = feddst("flower keys keys --hosts fed.example.org --nodes 2")
    assert outcome.code == 0
    made = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "keys").iterdir()}
    assert made.keys() == {"ca.pem", "server.pem", "server.key", "node-0", "node-0.pub", "node-1", "node-1.pub"}
    assert {mode for name, mode in made.items() if name in ("server.key", "node-0", "node-1")} == {0o600}
    assert feddst("flower keys keys --nodes 2").code == 2


def test_the_example_app_learns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flwr.app import Context, RecordDict

    from feddst.flower import InProcessGrid

    monkeypatch.syspath_prepend(ROOT / "examples" / "flower")
    monkeypatch.chdir(tmp_path)
    client, server = (imported(f"quickstart.{name}_app") for name in ("client", "server"))
    scores: list[float] = []
    monkeypatch.setattr(server, "evaluate", lambda round, arrays: scores.append(score_of(server, arrays)))
    values = tomllib.loads((ROOT / "examples/flower/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    run_config = {**values, "num-server-rounds": 2}
    server.app(InProcessGrid(client.app, 3), Context(1, 0, {}, RecordDict(), run_config))
    assert len(scores) == 2
    assert scores[-1] > 0.8
    assert (tmp_path / "final_model.pt").is_file()


def imported(name: str) -> ModuleType:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert module.__file__.startswith(str(ROOT))
    return sys.modules[name]


def score_of(server: ModuleType, arrays: Any) -> float:
    net = server.Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return float(server.test(net))


def flattened(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """As Flower flattens a config."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
