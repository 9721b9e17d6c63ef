"""What other packages bring: imported with feddst, in every process."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feddst.cli.main import main
from feddst.engines import ENGINES
from feddst.methods import METHODS, OwnGroups
from feddst.plugins import load_plugins
from feddst.runtime import toml

PAGES = (
    "extend-method",
    "extend-engine",
    "extend-codec",
    "extend-objective",
    "extend-optimizer",
    "extend-step",
    "extend-log",
    "extend-aggregator",
)
SMALL = "--data.clients 4 --data.images_per_class 5 --cohort.size 2 --local.epochs 1"


def test_the_program_finds_all_that_is_installed(code_page: Callable[[str], Any], tmp_path: Path) -> None:
    for name in PAGES:
        code_page(name).install(tmp_path)
    words = (
        "run --method halfway --wire.values float8 --local.objective focal --local.optimizer lion --log sheet "
        "--aggregator.kind median --engine.workers 1 --rounds 1 --out here"
    )
    program = "import sys; from feddst.cli.main import main; sys.exit(main() or main(['run', '--help']))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words.split(), *SMALL.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "summary.json").exists()
    assert (tmp_path / "here" / "rounds.csv").exists()
    assert "--engine.kind native|reference|stacked|debugging" in done.stdout
    assert "--aggregator.kind mean|trimmed-mean|median" in done.stdout


@pytest.mark.parametrize(
    ("module", "text", "reason"),
    [
        ("broken_plugin", "raise RuntimeError('not today')", "RuntimeError: not today"),
        ("leaving_plugin", "raise SystemExit('not here')", "SystemExit: not here"),
        ("no-module", "", r"(AttributeError|ValueError): "),  # the second where importlib_metadata has been imported
    ],
)
def test_a_plugin_that_fails_is_named_and_left_out(
    workshop: Path, caplog: pytest.LogCaptureFixture, module: str, text: str, reason: str
) -> None:
    about = workshop / "broken-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[feddst.plugins]\nbroken = {module}\n")
    (workshop / f"{module}.py").write_text(text)
    with caplog.at_level(logging.WARNING):
        load_plugins()
    [message] = [record.getMessage() for record in caplog.records]
    assert re.match(rf"plugin broken \({module}\) is left out: {reason}", message)


@pytest.mark.usefixtures("tiny_mnist")
def test_what_was_made_beside_a_plugin_can_be_used_without_it(
    code_page: Callable[[str], Any], workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of ours does not mention it; one that needs it says so."""
    registries: tuple[dict[str, Any], ...] = (METHODS, OwnGroups.kinds, ENGINES)
    known = [dict(registry) for registry in registries]
    for name in ("extend-method", "extend-engine"):
        code_page(name).install(workshop)
    load_plugins()
    small = f"{SMALL} --rounds 1".split()
    for out, words in {"ours": "", "method": "--method halfway", "engine": "--engine.kind debugging"}.items():
        assert main(["run", *words.split(), *small, "--out", out]) == 0
    assert main(["compare", "--methods", "feddst", *small, "--out", "comparison"]) == 0
    assert toml.read(workshop / "method/config.toml")["stride.share"] == 0.5
    for registry, before in zip(registries, known, strict=True):
        registry.clear()
        registry.update(before)
    assert main(["run", "--resume", "--out", "ours", "--rounds", "2"]) == 0
    assert main(["compare", "--methods", "feddst", *small, "--out", "comparison"]) == 0
    capsys.readouterr()
    missing = "; a plugin that was there when it was written may be missing\n"
    for out, reason in {"method": "got 'halfway'", "engine": "got 'debugging'"}.items():
        assert main(["run", "--resume", "--out", out, "--rounds", "2"]) == 2
        complaint = capsys.readouterr().err
        assert complaint.startswith(f"feddst: {out}/config.toml: ")
        assert complaint.endswith(f"{reason}{missing}")
