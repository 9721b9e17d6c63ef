"""The machine and the code that made a record."""

import os
import platform
import subprocess
import zlib
from pathlib import Path

import numpy as np
import torch

from feddst.engines.select import EngineConfig, cores

_PACKAGE = Path(__file__).parents[1]


def machine() -> dict[str, str | int]:
    """This machine and the libraries that matter, by name."""
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }


def device(config: EngineConfig) -> str:
    """What an engine computes on: the GPU by its name, or the CPU and how many cores of it."""
    found = config.torch_device()
    return torch.cuda.get_device_name(found) if found.type == "cuda" else f"{_cpu()}, {cores()} cores"


def commit() -> str:
    """The commit of this package, with `+changes` if it was edited since; empty where it is not a git checkout.

    For a copy of a checkout without its history, the variable FEDDST_COMMIT gives it.
    """
    if told := os.environ.get("FEDDST_COMMIT"):
        return told
    if _git("ls-files", "__init__.py"):
        return _git("rev-parse", "HEAD") + ("+changes" if _git("status", "--porcelain", "--", ".") else "")
    return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(*words: str) -> str:
    try:
        found = subprocess.run(["git", *words], cwd=_PACKAGE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()
