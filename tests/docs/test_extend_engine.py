"""docs/extend-engine.md: its engine trains as the reference engine does, and finds what it says it finds."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import feddst
from feddst.cli.main import main
from feddst.core import register
from feddst.engines import ENGINES, EngineConfig, make_engine
from feddst.errors import OptionError, TrainingError
from feddst.plugins import load_plugins

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1"


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(code_page: Callable[[str], Any], workshop: Path) -> None:
    page = code_page("extend-engine")
    page.install(workshop)
    left = page.run()
    assert left["ours"].config.engine.kind == "debugging"


def test_it_names_the_client_and_the_operation(code_page: Callable[[str], Any], workshop: Path) -> None:
    page = code_page("extend-engine")
    page.install(workshop)
    load_plugins()
    config, run, message = page.shown("pycon").splitlines()
    names = {"feddst": feddst}
    exec(config.removeprefix(">>> "), names)
    with pytest.raises(TrainingError, match=re.escape(message.removeprefix("feddst.errors.TrainingError: "))):
        eval(run.removeprefix(">>> "), names)


@pytest.mark.usefixtures("tiny_mnist")
def test_its_command_works_once_it_is_installed(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-engine")
    page.install(workshop)
    load_plugins()
    [call] = page.commands()
    assert main([*call, *SMALL.split()]) == 0
    assert main(["run", "--help"]) == 0
    assert "--engine.kind native|reference|stacked|debugging" in capsys.readouterr().out


def test_an_engine_is_known_once_and_an_unknown_one_is_refused() -> None:
    with pytest.raises(ValueError, match="a kind of engine named native is registered already: Native"):
        register(type(ENGINES["native"]))
    with pytest.raises(TypeError, match="must implement a base class of feddst, such as Method"):
        register(make_engine)
    with pytest.raises(OptionError, match=r"engine\.kind must be one of .*, got 'nativ'; did you mean 'native'"):
        feddst.configure(engine={"kind": "nativ"})
    with pytest.raises(OptionError, match=r"engine\.kind must be one of"):
        make_engine(EngineConfig(kind="nativ"), None, None)  # type: ignore[arg-type]
