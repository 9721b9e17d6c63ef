"""Configs in Python say what the command line says, and are refused alike."""

import pytest

from feddst.errors import OptionError
from feddst.options import updated
from feddst.runtime import RunConfig, configure
from feddst.runtime.presets import PRESETS


def test_groups_are_dicts() -> None:
    made = configure(method="feddst", rounds=50, data={"clients": 30}, sparsity={"level": 0.9})
    assert made == updated(RunConfig(), {"rounds": 50, "data.clients": 30, "sparsity.level": 0.9})


def test_a_preset_comes_first() -> None:
    made = configure("table1-feddst-published", rounds=9)
    assert made == updated(RunConfig(), {**PRESETS["table1-feddst-published"].options, "rounds": 9})


def test_mistakes_are_refused() -> None:
    with pytest.raises(OptionError, match=r"unknown option 'data\.client'; did you mean 'data\.clients'"):
        configure(data={"client": 3})
    with pytest.raises(OptionError, match=r"readjust\.alpha has no effect on fedavg"):
        configure(method="fedavg", readjust={"alpha": 0.1})
    with pytest.raises(OptionError, match=r"cohort\.size must be at most data\.clients"):
        configure(data={"clients": 3})
    with pytest.raises(OptionError, match="preset quick is for `feddst compare`"):
        configure("quick")
