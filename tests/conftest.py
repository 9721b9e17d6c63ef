"""What holds for all tests, and the project's scripts for those that need one."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import settings

from feddst.core import OBJECTIVES, OPTIMIZERS
from feddst.data import Dataset
from feddst.data.config import SOURCES
from feddst.runtime.checksums import unseal, unseal_lines, unseal_text
from feddst.runtime.storage import RunDirectory
from feddst.runtime.tensorfile import pack, unpack_sealed

settings.register_profile("feddst", deadline=None)  # how long an example takes depends on the machine
settings.load_profile("feddst")

SCRIPTS = Path(__file__).parents[1] / "scripts"


@dataclass(frozen=True)
class Outcome:
    """What a call of the program gave."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers, such as a loss of its own, is not known to the others."""
    before = [(registry, dict(registry)) for registry in (OBJECTIVES, OPTIMIZERS)]
    yield
    for registry, known in before:
        registry.clear()
        registry.update(known)  # type: ignore[arg-type]


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Stands in for MNIST: 200 training and 40 test images of 4 classes, 14×14 pixels."""
    draws = torch.Generator().manual_seed(5)
    centres = torch.randn(4, 1, 14, 14, generator=draws)
    labels = torch.arange(240) % 4
    images = centres[labels] + 0.3 * torch.randn(240, 1, 14, 14, generator=draws)
    data = Dataset.from_arrays((images[:200], labels[:200]), (images[200:], labels[200:]), name="mnist")
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: data)
    return data


@pytest.fixture
def called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Calls a program's `main` with words, or with one string of them, in `tmp_path`."""
    monkeypatch.chdir(tmp_path)

    def call(main: Callable[[Sequence[str]], int], *words: str) -> Outcome:
        code = main(words[0].split() if len(words) == 1 else words)
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return call


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


@pytest.fixture(scope="session")
def unseal_run() -> Callable[[Path], RunDirectory]:
    """Makes of a run's directory what it would have been before there were checksums."""

    def strip(path: Path) -> RunDirectory:
        run = RunDirectory(path)
        run.config.write_bytes(unseal_text(run.config.read_bytes(), b"").content)
        run.earlier_checkpoint.unlink(missing_ok=True)
        for lines in filter(Path.is_file, (run.metrics, run.details_file)):
            lines.write_bytes(b"".join(line.content + b"\n" for line in unseal_lines(lines.read_bytes())))
        if run.summary.is_file():
            run.summary.write_bytes(unseal(run.summary.read_bytes()).content + b"\n")
        if run.checkpoint.is_file():
            tensors, text, _ = unpack_sealed(run.checkpoint.read_bytes())
            about = {name: value for name, value in json.loads(text).items() if name != "told"}
            run.checkpoint.write_bytes(pack(tensors, {"feddst": json.dumps(about | {"format": 2})}))
        return run

    return strip
