"""docs/extend.md and its pages: every open end has a name, and what is added there does the same everywhere."""

import importlib
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import feddst
from feddst.cli.logs import LogArguments
from feddst.cli.main import main
from feddst.flower.config import FlowerConfig
from feddst.flower.simulation import simulate
from feddst.logs import Several
from feddst.options import options_of
from feddst.plugins import load_plugins
from feddst.runtime import RunConfig, toml

from .conftest import REGISTRIES, ROOT

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1 --engine.workers 1"
PAGE = (ROOT / "docs/extend.md").read_text()
ROWS = re.findall(r"^\| .+ \| `([\w.]+)` \| (.+) \| \[.+\]\((.+)\) \|$", PAGE, re.MULTILINE)


def base_of(name: str) -> Any:
    module, _, base = name.rpartition(".")
    return getattr(importlib.import_module(module), base)


def test_the_table_has_every_open_end_and_its_page() -> None:
    bases = [base_of(name) for name, _, _ in ROWS]
    assert {base.registry.what for base in bases} == {registry.what for registry in REGISTRIES}
    assert {base.__name__ for base in bases} == set(re.findall(r"`([A-Z]\w+)`", feddst.register.__doc__ or ""))
    for _, _, page in ROWS:
        assert f": {page}\n" in (ROOT / "mkdocs.yml").read_text()
        assert f"({page})" in (ROOT / "docs/index.md").read_text()


def test_options_name_them() -> None:
    choices = {opt.name: opt.choices for opt in options_of(RunConfig)}
    choices |= {f"--{opt.name}": opt.choices for opt in options_of(LogArguments)}
    for base, options, _ in ROWS:
        for option in re.findall("`(.+?)`", options):
            assert choices[option] == (() if option == "method" else tuple(base_of(base).registry))


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend")
    page.install(workshop)
    left = page.run()
    assert left["config"].local.optimizer == "adam99"
    assert int(capsys.readouterr().out.removesuffix("%\n")) > 20


@pytest.mark.usefixtures("tiny_mnist")
def test_its_commands_work_once_it_is_installed(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend")
    page.install(workshop)
    load_plugins()
    options, run = page.commands()
    assert main(options) == 0
    assert "(one of adagrad, adam, adamw, rmsprop, sgd, adam99)" in capsys.readouterr().out
    assert main([*run, *SMALL.split()]) == 0
    [config] = workshop.glob("runs/*/config.toml")
    assert toml.read(config)["local.optimizer"] == "adam99"


@pytest.fixture
def furnished(code_page: Callable[[str], Any], workshop: Path) -> Path:
    """A folder in which what these pages show is installed, and some arrays."""
    for name in ("extend", "extend-objective", "extend-optimizer", "extend-step", "extend-data", "extend-log"):
        code_page(name).install(workshop)
    load_plugins()
    exec(code_page("extend-data").shown("python").partition("config = ")[0], {})
    return workshop


def config_of(rounds: int = 2, kind: str = "reference", workers: int = 1, **options: Any) -> feddst.RunConfig:
    small: dict[str, Any] = {
        "data": {"dataset": "npz", "root": "shapes.npz", "clients": 4, "images_per_class": 5},
        "cohort": {"size": 2},
        "readjust": {"every": 1},
        "local": {"objective": "focal", "optimizer": "lion", "schedule": "root", "epochs": 2, "lr": 0.02},
        "engine": {"kind": kind, "workers": workers},
    }
    return feddst.configure(method="feddst+clip", clip={"norm": 0.01}, rounds=rounds, **{**small, **options})


def weights(out: str, config: feddst.RunConfig, *, resume: bool = False) -> dict[str, torch.Tensor]:
    return dict(feddst.run(config, out=out, resume=resume, watcher=Several()).model.state_dict())


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, two[name]) for name, value in one.items())


def test_all_of_them_at_once_do_the_same_on_every_engine(furnished: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = weights("whole", config_of())
    for kind in ("native", "stacked"):
        for name, value in weights(kind, config_of(kind=kind)).items():
            torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-4)
    caplog.clear()
    assert same(expected, weights("workers", config_of(workers=2)))
    assert caplog.text == ""
    assert not same(expected, weights("usual", config_of(local={"epochs": 2, "lr": 0.02})))


def test_all_of_them_at_once_are_resumed(furnished: Path) -> None:
    weights("parts", config_of(1))
    assert same(weights("whole", config_of()), weights("parts", config_of(), resume=True))


def test_all_of_them_at_once_go_over_flower(furnished: Path) -> None:
    whole = weights("whole", config_of())
    simulate(config_of(1), FlowerConfig(), out=furnished / "flower", watcher=Several())
    simulate(config_of(), FlowerConfig(), out=furnished / "flower", resume=True, watcher=Several())
    assert same(whole, dict(feddst.load("flower").state_dict()))


@pytest.mark.usefixtures("furnished")
def test_engines_say_what_they_have_no_kernels_for(caplog: pytest.LogCaptureFixture) -> None:
    usual = {"epochs": 1, "lr": 0.02}
    with caplog.at_level(logging.WARNING):
        for kind in ("native", "stacked", "reference"):
            weights(f"{kind}-optimizer", config_of(1, kind, local={**usual, "optimizer": "lion"}))
            weights(f"{kind}-step", config_of(2, kind, local=usual))
            weights(f"{kind}-aggregator", config_of(1, kind, local=usual, aggregator={"kind": "trimmed-mean"}))
    said = [record.getMessage() for record in caplog.records]
    shown = [line for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    assert len(shown) == 4
    # A step is looked at for each run, of which two have one with either engine.
    assert sorted(said) == sorted([*shown, shown[1], shown[2]])
