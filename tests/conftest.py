"""What holds for all tests, and the project's scripts for those that need one."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

settings.register_profile("feddst", deadline=None)  # how long an example takes depends on the machine
settings.load_profile("feddst")

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(scope="session")
def script_named() -> Callable[[str], ModuleType]:
    """A script by its name, as a module; another one each time."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # its dataclasses look there
        spec.loader.exec_module(module)
        return module

    return load
