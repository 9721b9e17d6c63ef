"""What start.md, how.md, own.md, tasks.md, data.md and training.md tell a reader to type works, and does what they say.

Commands run in the page's order in an empty directory, each through the program's own parser. Those that train run
as they stand but for the options below, which make them small, and on few of MNIST's images.
"""

import contextlib
import io
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from feddst.cli.arguments import parse
from feddst.cli.main import COMMANDS, main
from feddst.data import DataConfig, Dataset
from feddst.data.config import SOURCES
from feddst.errors import FeddstError

ROOT = Path(__file__).parents[2]
PAGES = ("start", "how", "own", "tasks", "data", "training", "choosing")
TRAINING = ("feddst run ", "feddst compare ")
SMALL = {"--rounds": "2", "--data.clients": "10", "--cohort.size": "2", "--local.epochs": "1", "--engine.workers": "1"}
FURTHER = "4"
"""Rounds of a run that is resumed: more than it has."""


def text_of(page: str) -> str:
    return (ROOT / f"docs/{page}.md").read_text()


def fences(page: str) -> list[tuple[str, str]]:
    """Every fenced block: its language and its lines. Text right below Python is what that prints: `printed`.

    A line that ends in a backslash goes on in the next.
    """
    joined = text_of(page).replace("\\\n", " ")
    text = re.sub(r"(?<=^```\n\n```)text", "printed", joined, flags=re.MULTILINE)
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    """Every line that calls the program."""
    lines = [line for language, block in fences(page) if language in ("sh", "") for line in block.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.startswith("feddst ")]


def made_small(line: str) -> list[str]:
    """The words of a command that trains, with the options above in place of its own."""
    words = shlex.split(line)[1:]
    options = {"--rounds": FURTHER} if "--resume" in words else SMALL
    for name, value in options.items():
        if name in words:
            words[words.index(name) + 1] = value
        else:
            words += [name, value]
    return words


class Reader:
    """Types in what a page says, from its top to its bottom."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.names: dict[str, Any] = {"__name__": page}
        self.printed = ""

    def read(self) -> None:
        """Go through all blocks."""
        for language, block in fences(self.page):
            if language == "python":
                self.printed = self.run(block)
            elif language == "printed":
                assert self.printed == block
            elif language == "toml":
                Path(self.toml_name()).write_text(block)
            elif language == "sh":
                for line in block.splitlines():
                    self.type_in(line)

    def run(self, block: str) -> str:
        seen = io.StringIO()
        with contextlib.redirect_stdout(seen):
            exec(compile(block, f"{self.page}.md", "exec"), self.names)
        return seen.getvalue()

    def toml_name(self) -> str:
        [name] = re.findall(r"`(\w+\.toml)`:", text_of(self.page))
        return str(name)

    def type_in(self, line: str) -> None:
        if line.startswith("feddst "):
            words = made_small(line) if line.startswith(TRAINING) and "--help" not in line else shlex.split(line)[1:]
            assert main(words) == 0, line
        else:
            assert line == "make run" or re.fullmatch(r"pip install '\.\[\w+\]'", line), line

    def is_refused(self) -> None:
        """Ask for what the page's list of errors asks for, and be told what it says."""
        errors = re.findall(r"^- `(feddst\..*)`\n  says `(.*)`\.$", text_of(self.page), re.MULTILINE)
        assert len(errors) > 9
        for asked, said in errors:
            with pytest.raises(FeddstError) as refused:
                eval(asked, self.names)
            assert str(refused.value) == said


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_understood(page: str) -> None:
    """Whole, with their own options and values."""
    for line in commands(page):
        words = shlex.split(line)[1:]
        name = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
        if name is None:
            assert words == ["--version"], line
            continue
        parse(words[len(name.split()) :], COMMANDS[name].options(), words=COMMANDS[name].words)


@pytest.fixture(scope="module")
def few_digits() -> Dataset:
    """The first images of MNIST."""
    whole = SOURCES["mnist"].load(DataConfig())
    train = whole.train_images[:2000], whole.train_labels[:2000]
    test = whole.test_images[:300], whole.test_labels[:300]
    return Dataset.from_arrays(train, test, name="mnist", mean=whole.mean, std=whole.std)


@pytest.mark.usefixtures("workshop")
@pytest.mark.parametrize("page", ["start", "how", "own", "tasks", "data", "training"])
def test_a_page_works_from_top_to_bottom(page: str, monkeypatch: pytest.MonkeyPatch, few_digits: Dataset) -> None:
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: few_digits)
    reader = Reader(page)
    reader.read()
    if page == "own":
        reader.is_refused()
    if page == "start":
        listed = [
            line.split()[0] for _, block in fences(page) for line in block.splitlines() if line.startswith("runs/")
        ]
        assert len(listed) == 8
        made = [f"runs/mine/model.{ending}" for ending in ("safetensors", "pt", "onnx", "fdst")]
        for path in [*listed, *made, "runs/mine/report.html", "runs/quick/report.html", "runs/from-file/summary.json"]:
            assert Path(path).is_file(), path


def test_how_to_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for page in PAGES:
        for extras in re.findall(r"pip install '(?:\.|feddst)\[([\w,]+)\]'", text_of(page)):
            assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in text_of("start")
    makefile = (ROOT / "Makefile").read_text()
    assert commands("start")[1] in re.search(r"^run:.*?\n\n", makefile, re.DOTALL | re.MULTILINE)[0]  # type: ignore[index]


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text_of(page)):
            assert target.startswith("https://") or (ROOT / "docs" / target).exists(), f"{page}: {target}"
