"""Flower's command line: where its programs are, what their environment says, and `flwr` asked for JSON."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddst.errors import FlowerError
from feddst.flower.config import Value
from feddst.flower.deployment.private import make_private

CONNECTION = "local"
"""The name of the SuperLink in the config file of `flwr`."""

_SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_LOG_LEVEL": "INFO",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds until a waiting task gets its process; Flower's own: 1
    "PYTHONUNBUFFERED": "1",
}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def program(name: str) -> str:
    """The path of one of Flower's programs: that of this Python, or else the first on the PATH."""
    found = shutil.which(name, path=_path())
    if found is None:
        raise FlowerError(f"{name} is not installed: pip install 'feddst[flower]'")
    return found


def environment(home: Path) -> dict[str, str]:
    """What Flower's programs run with: nothing leaves the machine, and their files go to `home`."""
    return {**os.environ, **_SWITCHES, "PATH": _path(), "FLWR_HOME": str(home)}


def write_connection(home: Path, address: str, authority: Path | None) -> None:
    """Write the config file that tells `flwr` where the SuperLink is, and which CA to trust."""
    trust = "insecure = true" if authority is None else f"root-certificates = {json.dumps(str(authority))}"
    make_private(home)
    (home / "config.toml").write_text(
        f"[superlink]\ndefault = {json.dumps(CONNECTION)}\n\n"
        f"[superlink.{CONNECTION}]\naddress = {json.dumps(address)}\n{trust}\n"
    )


def write_values(path: Path, values: Mapping[str, Value]) -> Path:
    """Write a run or node config as a TOML file, which Flower's programs take in place of `key=value` words."""
    make_private(path.parent)
    lines = (f"{json.dumps(key)} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path


def ask(home: Path, *words: str, seconds: float = 60.0) -> dict[str, Any]:
    """The JSON answer of `flwr`; its error message is raised."""
    command = [program("flwr"), *words, CONNECTION, "--format", "json"]
    try:
        done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise FlowerError(f"flwr {' '.join(words)} gave no answer in {seconds:g} s") from None
    said = plain(done.stdout)
    try:
        answer: dict[str, Any] = json.loads(said[said.index("{") :])
    except ValueError:
        raise FlowerError(f"flwr {' '.join(words)} failed:\n{plain(done.stderr).strip() or said.strip()}") from None
    if not answer.get("success"):
        raise FlowerError(f"flwr {' '.join(words)} failed: {answer.get('error-message', said.strip())}")
    return answer


def plain(text: str) -> str:
    """Text without colours."""
    return _COLOURS.sub("", text)


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
