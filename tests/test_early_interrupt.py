"""Ctrl-C before the program can catch anything ends it in one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from feddst import early_interrupt

HELD = """
import builtins, os, signal, sys
real = builtins.__import__
def held(name, *rest, **others):
    if name == "torch":
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest, **others)
builtins.__import__ = held
signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))
sys.argv = [sys.argv[2]]
import feddst
print("imported")
"""
"""A program that is interrupted when the package imports PyTorch."""


def interrupted(handler: str, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HELD, handler, program], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("program", ["/somewhere/bin/feddst", "-m"])
def test_an_interrupt_during_imports_is_one_line(program: str) -> None:
    done = interrupted("default_int_handler", program)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "feddst: interrupted\n")


def test_little_is_imported_before_an_interrupt_is_waited_for() -> None:
    script = (
        "import importlib.util, signal, sys, threading; before = set(sys.modules); "
        "spec = importlib.util.spec_from_file_location('early', sys.argv[1]); "
        "spec.loader.exec_module(importlib.util.module_from_spec(spec)); print(sorted(set(sys.modules) - before))"
    )
    told = [sys.executable, "-I", "-S", "-c", script, str(Path(early_interrupt.__file__))]
    assert subprocess.check_output(told, text=True, timeout=120) == "[]\n"


def test_other_programs_hear_of_it_as_ever() -> None:
    done = interrupted("default_int_handler", "/somewhere/train.py")
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr


def test_who_ignores_interrupts_goes_on_ignoring_them() -> None:
    assert interrupted("SIG_IGN", "/somewhere/bin/feddst").stdout == "imported\n"


def test_the_programs_own_handler_takes_over() -> None:
    """`--version` comes after the imports: by then Python's own handler is back."""
    script = "import signal, sys; sys.argv = ['feddst']; from feddst.cli.main import main; main(['--version']); "
    script += "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    reset = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    done = subprocess.run([sys.executable, "-c", reset + script], env=os.environ, cwd=Path.cwd(), timeout=120)
    assert done.returncode == 0
