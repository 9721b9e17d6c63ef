"""Pages of the docs, their code blocks, and a place to run them in that leaves no trace."""

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from feddst.core import AGGREGATORS, OBJECTIVES, OPTIMIZERS, SCHEDULES, Registry
from feddst.core.step import STEPS
from feddst.data import SOURCES, Dataset
from feddst.engines import ENGINES
from feddst.logs import LOGS
from feddst.methods import METHODS, OwnGroups
from feddst.wire import CODECS

ROOT = Path(__file__).parents[2]
REGISTRIES: tuple[Registry[Any], ...] = (
    METHODS,
    STEPS,
    OBJECTIVES,
    OPTIMIZERS,
    SCHEDULES,
    AGGREGATORS,
    SOURCES,
    CODECS,
    ENGINES,
    LOGS,
)
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A code block of a page: its language, its file name if it has one, and its text."""

    language: str
    title: str
    text: str


@dataclass(frozen=True)
class CodePage:
    """A page that shows how to do something."""

    name: str
    blocks: tuple[Block, ...]

    def shown(self, language: str) -> str:
        """The page's blocks in this language that are no files, as one text."""
        return "\n".join(block.text for block in self.blocks if block.language == language and not block.title)

    def install(self, folder: Path) -> None:
        """Write the page's files into a folder, and what pip would write for its entry points."""
        for block in self.blocks:
            if block.title == "pyproject.toml":
                points = tomllib.loads(block.text)["project"]["entry-points"]
                about = folder / f"{self.name.replace('-', '_')}-0.1.dist-info"
                about.mkdir()
                (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {self.name}\nVersion: 0.1\n")
                (about / "entry_points.txt").write_text(
                    "".join(
                        f"[{group}]\n" + "".join(f"{name} = {module}\n" for name, module in entries.items())
                        for group, entries in points.items()
                    )
                )
            elif block.title:
                (folder / block.title).write_text(block.text)

    def run(self) -> dict[str, Any]:
        """Run what the page has the reader run, in one go; returns the names it left behind."""
        names: dict[str, Any] = {"__name__": self.name}
        exec(compile(self.shown("python"), f"{self.name}.md", "exec"), names)
        return names

    def commands(self) -> list[list[str]]:
        """The calls of `feddst` that the page shows, as words."""
        lines = self.shown("console").splitlines()
        return [line.removeprefix("$ feddst ").split() for line in lines if line.startswith("$ feddst ")]


@pytest.fixture
def code_page() -> Callable[[str], CodePage]:
    """A page by its name."""

    def read(name: str) -> CodePage:
        text = (ROOT / f"docs/{name}.md").read_text()
        return CodePage(name, tuple(Block(*found) for found in _BLOCK.findall(text)))

    return read


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on Python's path; what is registered or imported from it is gone afterwards."""
    registries: tuple[dict[str, Any], ...] = (*REGISTRIES, OwnGroups.kinds)
    before, modules = [dict(one) for one in registries], set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for MNIST: 1,000 training and 100 test images of 10 classes, 14×14 pixels."""
    draws = torch.Generator().manual_seed(5)
    centres = torch.randn(10, 1, 14, 14, generator=draws)
    labels = torch.arange(1100) % 10
    images = centres[labels] + 0.3 * torch.randn(1100, 1, 14, 14, generator=draws)
    data = Dataset.from_arrays((images[:1000], labels[:1000]), (images[1000:], labels[1000:]), name="mnist")
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: data)
