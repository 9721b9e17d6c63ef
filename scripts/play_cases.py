"""Carry out the commands of many cases with the feddst that is on the path; `compare_commits.py` calls this.

    python scripts/play_cases.py CASES.json

CASES.json has for each case its name, a log file, and commands: the words after `feddst`, or after `own-network`,
which trains a network with BatchNorm through the Python API. Each case has a process of its own, forked from one that
has imported feddst already, since importing takes longer than most cases. A line of JSON on standard output says which
files were loaded, and one for each case how it ended.
"""

import importlib
import json
import os
import runpy
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from torch import nn

OWN_NETWORK = "own-network"


def own_network() -> nn.Module:
    """A small network with BatchNorm for MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 12 * 12, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def train_own_network(config: Path, out: Path) -> int:
    """Train it as a config says; the exit code."""
    import feddst

    options = tomllib.loads(config.read_text())
    return 0 if feddst.run(feddst.configure(**options), model=own_network, out=out).finished else 1


def command(words: Sequence[str]) -> int:
    """Carry out one command as a shell would; its exit code."""
    if words[0] == OWN_NETWORK:
        return train_own_network(Path(words[1]), Path(words[2]))
    sys.argv = ["feddst", *words]
    try:
        runpy.run_module("feddst", run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def case(commands: Sequence[Sequence[str]], log: Path) -> int:
    """Carry out a case's commands, up to the first that fails, in a process of their own; the exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            code = next((code for words in commands if (code := command(words))), 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> int:
    cases = json.loads(Path(sys.argv[1]).read_text())
    loaded = [importlib.import_module(name).__file__ for name in ("feddst", "feddst._native")]
    importlib.import_module("feddst.cli.main")
    print(json.dumps({"loaded": loaded}), flush=True)
    for one in cases:
        print(json.dumps({"name": one["name"], "code": case(one["commands"], Path(one["log"]))}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
