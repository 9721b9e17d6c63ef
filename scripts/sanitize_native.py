"""Build `feddst._native` with AddressSanitizer and UBSan, and run its tests under both.

    python scripts/sanitize_native.py --out results/native-sanitizers.json

Everything happens in a temporary directory: the module is built there, and lies there beside a copy of the package,
which goes before the installed one. The tests run to the first finding, which aborts them; the exit status is 0 only
if there is none and every test has passed. Needs GCC (Clang links its sanitizers in another way), and CMake and
nanobind, which `make` installs.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from feddst.runtime.machine import commit, machine

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/engines/native",)
LIBRARIES = ("libasan.so", "libubsan.so", "libstdc++.so")
"""Loaded before Python: the sanitizers must come first, and C++ before they look for the functions they watch."""
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:halt_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
}
"""Python itself leaves memory behind, so that leaks say nothing."""


class SetupError(Exception):
    """The sanitizers cannot be run here."""


@dataclass
class Outcome:
    """The outcome of the tests. `findings` are the sanitizers' own reports."""

    exit_status: int
    tests: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.exit_status == 0 and not self.findings and bool(self.tests.get("passed"))


def build(folder: Path) -> tuple[Path, str]:
    """The sanitized module, and the compiler that made it."""
    cmake, found = find_cmake(), find_nanobind()
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = ["-DFEDDST_SANITIZE=ON", f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={found}"]
    _run([cmake, "-S", str(ROOT), "-B", str(folder), *generator, *options])
    _run([cmake, "--build", str(folder)])
    [module] = folder.glob("_native*.so")
    for name in (b"__asan_", b"__ubsan_"):
        if name not in module.read_bytes():
            raise SetupError(f"the module was built without {name.decode().strip('_')}")
    cache = (folder / "CMakeCache.txt").read_text()
    [compiler] = re.findall(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)
    return module, compiler


def find_cmake() -> str:
    """CMake beside this Python, where `make` installs it, or on the path."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("cmake", path=places)
    if found is None:
        raise SetupError("CMake is missing: pip install cmake")
    return found


def find_nanobind() -> str:
    """The directory of nanobind's files for CMake."""
    if importlib.util.find_spec("nanobind") is None:
        raise SetupError("nanobind is missing: pip install nanobind")
    return _run([sys.executable, "-m", "nanobind", "--cmake_dir"])


def libraries(compiler: str) -> list[str]:
    """Where the sanitizers' libraries are."""
    found = [_run([compiler, f"-print-file-name={name}"]) for name in LIBRARIES]
    missing = [name for name, path in zip(LIBRARIES, found, strict=True) if not Path(path).is_absolute()]
    if missing:
        raise SetupError(f"{compiler} has no {', '.join(missing)}: GCC's sanitizers are needed")
    return [str(Path(path).resolve()) for path in found]


def lay_out(folder: Path, module: Path) -> None:
    """A copy of the package with this module in it."""
    shutil.copytree(
        ROOT / "src" / "feddst", folder / "feddst", ignore=shutil.ignore_patterns("_native*.so", "__pycache__")
    )
    shutil.copy(module, folder / "feddst")


def run_tests(folder: Path, package: Path, preload: Sequence[str], tests: Sequence[str]) -> Outcome:
    """The tests in a process of their own, with the sanitizers in it."""
    errors, results = folder / "errors.txt", folder / "tests.xml"
    environment = {
        **os.environ,
        **OPTIONS,
        "LD_PRELOAD": " ".join(preload),
        "PYTHONPATH": str(package),
        "PYTHONMALLOC": "malloc",  # each Python object apart, so that no access beyond one goes unseen
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }
    where = _run([sys.executable, "-c", "import feddst._native as n; print(n.__file__)"], environment)
    if not Path(where).is_relative_to(package):
        raise SetupError("Python loads another feddst._native than the one that was built")
    # The sanitizers write to the process's own standard error, which pytest must leave alone.
    options = ["--capture=sys", "-p", "no:cacheprovider", f"--junitxml={results}"]
    with errors.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, env=environment, stderr=file
        )
    outcome = Outcome(done.returncode)
    if results.exists():
        outcome.tests, outcome.failed = _read_results(results)
    hide = {str(package): "src", str(folder): "build", str(ROOT): ".", str(Path(sys.prefix)): "venv"}
    outcome.findings = [_without(text, hide) for text in _findings(errors.read_text(errors="replace"))]
    if done.returncode < 0 and not outcome.findings:
        outcome.findings.append(f"the tests were ended by signal {-done.returncode}")
    return outcome


def _findings(errors: str) -> list[str]:
    """The sanitizers' reports among what was written to standard error, each to the next one's beginning."""
    errors = errors.partition("Fatal Python error")[0]
    begin = r"^(?=.*(?:runtime error:|ERROR: AddressSanitizer|AddressSanitizer:DEADLYSIGNAL))"
    return re.split(begin, errors, flags=re.MULTILINE)[1:]


def _read_results(path: Path) -> tuple[dict[str, int], list[str]]:
    """How many tests passed, failed and were skipped, and the names of those that failed."""
    counts: Counter[str] = Counter()
    failed = []
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        counts[kind] += 1
        if kind == "failed":
            failed.append(f"{case.get('classname')}::{case.get('name')}")
    return dict(counts), failed


def _without(text: str, hide: Mapping[str, str]) -> str:
    """The beginning of a report, without this machine's paths and addresses."""
    for path, name in sorted(hide.items(), key=lambda item: -len(item[0])):
        text = text.replace(path, name)
    text = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)
    lines = re.sub(r"0x[0-9a-f]+|==\d+==", "…", text).strip().splitlines()
    return "\n".join(line[:160] for line in lines[:12])


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a command to its end; its output, or an error that shows it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    except OSError as error:
        raise SetupError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode:
        raise SetupError(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def _source() -> dict[str, str]:
    """What is built and tested: the commit, and a digest of the C++ sources, committed or not."""
    sources = sorted(path for path in (ROOT / "native").iterdir() if path.is_file())
    files = [ROOT / "CMakeLists.txt", *sources]
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()
    base = commit()
    edited = base and _run(["git", "-C", str(ROOT), "status", "--porcelain", "--", "CMakeLists.txt", "native", "tests"])
    return {"commit": base if base.endswith("+changes") or not edited else f"{base}+changes", "native": digest}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write the record; must not exist")
    parser.add_argument("tests", nargs="*", default=TESTS, help=f"what to run (default: {' '.join(TESTS)})")
    args = parser.parse_args()
    if args.out is not None and args.out.exists():
        parser.error(f"{args.out} exists already")
    began, source = time.monotonic(), _source()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            print("building feddst._native with AddressSanitizer and UBSan", flush=True)
            module, compiler = build(folder / "build")
            preload = libraries(compiler)
            lay_out(folder / "package", module)
            print(
                f"running {' '.join(args.tests)} under both, in Python with {', '.join(LIBRARIES)} loaded", flush=True
            )
            outcome = run_tests(folder, folder / "package", preload, args.tests)
        except SetupError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        version = _run([compiler, "--version"]).splitlines()[0]
    for finding in outcome.findings:
        print(finding)
    tests = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.tests.items())) or "none ran to the end"
    print(f"{len(outcome.findings)} findings; tests: {tests}")
    if args.out is not None:
        record = {
            "command": " ".join(["python", *sys.argv]),
            "machine": machine(),
            "compiler": version,
            "options": OPTIONS,
            **source,
            "seconds": round(time.monotonic() - began, 1),
            "tests_of": list(args.tests),
            **asdict(outcome),
        }
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
