"""`feddst export` from the outside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from feddst import Dataset
from feddst import load as load_model
from feddst.cli.arguments import parse
from feddst.cli.main import COMMANDS

Call = Callable[..., Any]


def test_a_run_is_exported_into_its_directory(feddst: Call, tmp_path: Path, small: str, tiny_mnist: Dataset) -> None:
    assert feddst(f"run --rounds 2 {small} --out here").code == 0
    outcome = feddst("export here --format sparse")
    assert (outcome.code, outcome.err) == (0, "")
    size = (tmp_path / "here/model.fdst").stat().st_size
    lines = outcome.out.splitlines()
    assert lines[0].startswith(f"model  here/model.fdst: {size:,} bytes; dense it would be ")
    assert lines[1] == "card   here/model.fdst.md"
    images = tiny_mnist.inputs(tiny_mnist.test_images)
    assert torch.equal(load_model("here/model.fdst")(images), load_model("here")(images))
    # The run goes on as if nothing had happened.
    assert feddst("run --resume --out here --rounds 3").code == 0


def test_a_file_is_not_overwritten(feddst: Call, tmp_path: Path, small: str) -> None:
    feddst(f"run --rounds 1 {small} --out here")
    first = feddst("export here --out mine.safetensors")
    assert first.code == 0
    assert first.out.splitlines()[0].endswith(" bytes")
    before = (tmp_path / "mine.safetensors").read_bytes()
    outcome = feddst("export here --out mine.safetensors")
    assert (outcome.code, outcome.err) == (
        2,
        "feddst: mine.safetensors exists already: name another file with out (--out on the command line)\n",
    )
    assert (tmp_path / "mine.safetensors").read_bytes() == before


def test_a_clients_model_and_what_is_said_of_the_servers(feddst: Call, small: str) -> None:
    feddst(f"run --method lotteryfl --rounds 1 {small} --out here")
    outcome = feddst("export here")
    assert outcome.err.startswith("note: lotteryfl ends with one model a client. This is the server's")
    refused = feddst("export here --client 77")
    assert refused.err.startswith("feddst: client must be one that has trained (")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("export", "export needs the directory of a run"),
        ("export missing", "missing holds no run: config.toml is missing"),
        ("export missing --format onxx", "got 'onxx'; did you mean 'onnx'?"),
        ("export missing --format torch --values q8", "values must be float32 where format is torch, got 'q8'"),
        ("export missing --client -3", "client must be at least -1, got -3"),
    ],
)
def test_bad_input_is_one_line(feddst: Call, tmp_path: Path, line: str, message: str) -> None:
    outcome = feddst(line)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_the_commands_in_the_docs_are_commands() -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    lines = [line.partition("#")[0].split()[1:] for line in page.splitlines() if line.startswith("feddst ")]
    assert len(lines) >= 6
    for name, *words in lines:
        assert parse(words, COMMANDS[name].options(), words=COMMANDS[name].words)
