"""What other packages bring: imported with feddst, in every process."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feddst.plugins import load_plugins

PAGES = ("extend-method", "extend-engine", "extend-codec")


def test_the_program_finds_all_that_is_installed(code_page: Callable[[str], Any], tmp_path: Path) -> None:
    for name in PAGES:
        code_page(name).install(tmp_path)
    words = "run --method halfway --wire.values float8 --rounds 1 --out here"
    small = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1"
    program = "import sys; from feddst.cli.main import main; sys.exit(main() or main(['run', '--help']))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words.split(), *small.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "summary.json").exists()
    assert "--engine.kind native|reference|stacked|debugging" in done.stdout


def test_a_plugin_that_fails_is_named_and_left_out(workshop: Path, caplog: pytest.LogCaptureFixture) -> None:
    about = workshop / "broken-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[feddst.plugins]\nbroken = broken_plugin\n")
    (workshop / "broken_plugin.py").write_text("raise RuntimeError('not today')\n")
    with caplog.at_level(logging.WARNING):
        load_plugins()
    assert [record.getMessage() for record in caplog.records] == [
        "plugin broken (broken_plugin) is left out: RuntimeError: not today"
    ]
