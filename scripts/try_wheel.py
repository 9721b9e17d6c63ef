"""Look into a built wheel, install it into an empty environment far from the checkout, and use it as a stranger would.

    python scripts/try_wheel.py dist

Prints what it does and ends at the first thing that is not as it should be.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feddst import __version__

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 20 * 2**20
"""Bytes of a wheel, of which MNIST takes eleven and a half million."""

PARTS = ("train", "t10k")
MNIST = tuple(
    f"feddst/data/bundled/{part}-{what}-ubyte.gz" for part in PARTS for what in ("images-idx3", "labels-idx1")
)
METADATA = f"feddst-{__version__}.dist-info"
NEEDED = (*MNIST, "feddst/data/bundled/shakespeare.txt.xz", "feddst/py.typed", f"{METADATA}/entry_points.txt")
SMALL = ("--data.clients", "40", "--cohort.size", "5")


class WheelError(Exception):
    """Something about the wheel is not as it should be."""


def licences() -> list[str]:
    """Where a wheel has the licences that the project names: its own, and those of what it contains."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license-files"]
    paths = [path.relative_to(ROOT) for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return [f"{METADATA}/licenses/{path.as_posix()}" for path in paths]


def faults(names: Sequence[str], suffix: str) -> list[str]:
    """What is wrong with a wheel that holds these files, for a Python whose extension modules end in `suffix`."""
    found = [f"{name} is missing" for name in (*NEEDED, *licences()) if name not in names]
    found += [f"{name} does not belong there" for name in names if not name.startswith(("feddst/", f"{METADATA}/"))]
    compiled = [name for name in names if name.endswith((".so", ".pyd"))]
    if compiled != [f"feddst/_native{suffix}"]:
        found.append(f"feddst/_native{suffix} should be its one compiled file, not {', '.join(compiled) or 'none'}")
    found += [f"{name} is a by-product" for name in names if "__pycache__" in name]
    return found


def look_into(wheel: Path) -> None:
    """Raise unless the wheel holds what it should, no more, and is no larger than it need be."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    found = faults(names, str(sysconfig.get_config_var("EXT_SUFFIX")))
    size = wheel.stat().st_size
    if size > LARGEST:
        found.append(f"it has {size:,} bytes, more than {LARGEST:,}")
    if found:
        raise WheelError(f"{wheel.name}: {'; '.join(found)}")
    print(f"{wheel.name}: {len(names)} files, {size / 2**20:.1f} MiB", flush=True)


@dataclass(frozen=True)
class Stranger:
    """A user with an environment of their own, without the checkout."""

    folder: Path

    def set_up(self) -> None:
        venv.create(self.folder / "env", with_pip=True)

    def call(self, program: str, *words: str) -> str:
        """Run a program of the environment in an empty folder beside it; returns its output."""
        print("$", program, *words, flush=True)
        place = self.folder / "work"
        place.mkdir(exist_ok=True)
        hidden = ("PYTHON", "FEDDST", "VIRTUAL_ENV")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        command = [str(self.folder / "env" / "bin" / program), *words]
        done = subprocess.run(command, cwd=place, env=environment, text=True, capture_output=True)
        if done.returncode:
            raise WheelError(f"{program} {words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, what: str) -> None:
        quiet = ("--quiet", "--disable-pip-version-check")
        self.call("python", "-m", "pip", "install", *quiet, "--constraint", str(ROOT / "constraints.txt"), what)

    def made(self, name: str) -> None:
        """Raise unless the calls so far have made this file."""
        if not (self.folder / "work" / name).is_file():
            raise WheelError(f"{name} was not written")


def try_out(wheel: Path, stranger: Stranger) -> None:
    """Install the wheel with nothing but what it asks for, train, then add plots, compare and report."""
    stranger.set_up()
    stranger.install(str(wheel))
    version = stranger.call("feddst", "--version").split()
    if version[-1:] != [__version__]:
        raise WheelError(f"feddst --version says {version}, not {__version__}")
    where = stranger.call("python", "-c", "import feddst._native; print(feddst._native.__file__)").strip()
    if not Path(where).is_relative_to(stranger.folder.resolve() / "env"):
        raise WheelError(f"the compiled kernels come from {where}")
    kernels = ("--engine.kind", "native")
    print(stranger.call("feddst", "run", "--rounds", "2", *SMALL, *kernels, "--out", "run"), end="")
    stranger.made("run/summary.json")
    stranger.install(f"{wheel}[report]")
    print(stranger.call("feddst", "compare", "--preset", "quick", "--rounds", "2", *SMALL, "--out", "quick"), end="")
    print(stranger.call("feddst", "report", "quick"), end="")
    for name in ("comparison.json", "comparison.md", "accuracy.png", "report.html"):
        stranger.made(f"quick/{name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where `make wheel` put the wheel")
    wheels = sorted(parser.parse_args().folder.glob(f"feddst-{__version__}-*.whl"))
    if len(wheels) != 1:
        print(f"one wheel of feddst {__version__} is needed, found {len(wheels)}: run make wheel", file=sys.stderr)
        return 1
    try:
        look_into(wheels[0])
        with tempfile.TemporaryDirectory() as folder:
            try_out(wheels[0].resolve(), Stranger(Path(folder)))
    except WheelError as error:
        print(error, file=sys.stderr)
        return 1
    print("the wheel works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
