"""docs/extend-codec.md: its codec carries updates in as many bytes as it says, and refuses what it never writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from feddst.cli.main import main
from feddst.errors import WireError
from feddst.plugins import load_plugins
from feddst.runtime import toml
from feddst.wire import CODECS
from feddst.wire.codecs import codec_coded

SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1"


@pytest.mark.usefixtures("tiny_mnist")
def test_the_page_runs_as_it_stands(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = code_page("extend-codec")
    page.install(workshop)
    runs = page.run()["runs"]
    sent = {name: run.rows[-1].upload_bytes for name, run in runs.items()}
    assert f"float8 {sent['float8']} " in capsys.readouterr().out
    assert sent["float8"] < sent["q8"] < sent["float32"]
    final = {name: run.summary.final for name, run in runs.items()}
    assert abs(final["float8"] - final["float32"]) < 0.1
    assert final["float8"] > 0.3


def test_what_the_page_says_of_its_bytes(code_page: Callable[[str], Any], workshop: Path) -> None:
    with pytest.raises(WireError, match="names value codec 128, which is not known here"):
        codec_coded(128)
    code_page("extend-codec").install(workshop)
    load_plugins()
    codec, draws = CODECS["float8"], np.random.default_rng(0)
    assert codec_coded(128) is codec
    values = [torch.randn(1000), torch.tensor([0.0, 9.0, -9.0]), torch.empty(0)]
    data = codec.encode(values, draws)
    assert len(data) == codec.size([1000, 3, 0])
    got = codec.decode(memoryview(data), [1000, 3, 0])
    assert got[1].tolist() == [0.0, 1.75, -1.75]
    # Three bits of mantissa: within a sixteenth, and below 2^-14 within half of the smallest step.
    near = values[0].clamp(-1.75, 1.75)
    assert ((got[0] - near).abs() <= (near.abs() / 16).clamp(min=2.0**-18)).all()
    every = codec.decode(memoryview(bytes(set(range(256)) - {0x7F, 0xFF})), [254])[0]
    assert len(set(every.tolist())) == 253
    for code in (0x7F, 0xFF):
        with pytest.raises(WireError, match="not a number"):
            codec.decode(memoryview(bytes([0, code])), [2])


@pytest.mark.usefixtures("tiny_mnist")
def test_its_command_works_once_it_is_installed(code_page: Callable[[str], Any], workshop: Path) -> None:
    page = code_page("extend-codec")
    page.install(workshop)
    load_plugins()
    [call] = page.commands()
    assert main([*call, *SMALL.split()]) == 0
    [config] = workshop.glob("runs/*/config.toml")
    assert toml.read(config)["wire.values"] == "float8"
