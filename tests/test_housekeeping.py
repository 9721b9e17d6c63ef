"""What stands beside the code: the citation, the changelog, the workflows and the wheel's check."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import feddst

ROOT = Path(__file__).parents[1]
CHANGELOG, MAKEFILE, CONTRIBUTING = (
    (ROOT / name).read_text() for name in ("CHANGELOG.md", "Makefile", "CONTRIBUTING.md")
)
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MIRRORED = {"benchmarks": ROOT, "scripts": ROOT}
"""Folders under tests/ that mirror one of the repository; the others mirror one of the package."""
PAGES = {"docs", "examples"}
"""Folders under tests/ that are about what pages and examples show."""
TOGETHER = {
    "cli/test_bad_input.py": "every command: one line for whatever is wrong with the input",
    "cli/test_commands.py": "compare and data show from the outside",
    "cli/test_stopping.py": "every command, interrupted",
    "data/test_huggingface.py": "data sets and partitions of packages that are not installed",
    "data/test_wrong_data.py": "every way to give data that will not do: one line",
    "engines/native/test_bad_calls.py": "the compiled module: what it refuses",
    "engines/native/test_by_hand.py": "the compiled module: losses and Adam by hand",
    "engines/native/test_kernels.py": "the compiled module: layers and chains",
    "engines/native/test_not_a_number.py": "the compiled module: numbers that are none",
    "engines/native/test_readjust.py": "the compiled module: readjustment",
    "engines/stacked/test_objectives.py": "clients side by side with every objective, beside the reference engine",
    "flower/deployment/test_federation.py": "whole federations on loopback",
    "flower/test_faults.py": "a federation whose clients fail",
    "flower/test_garbage.py": "a federation whose clients send garbage",
    "flower/test_own_task.py": "a federation with a loss of its own",
    "flower/test_parity.py": "a federation has the bits of a run",
    "flower/test_resume.py": "a federation that goes on",
    "flower/test_streaming.py": "a server that never holds all updates",
    "flower/test_without_data.py": "a server that has no data",
    "methods/test_merge.py": "FedDST's server: masks that differ",
    "methods/test_feddst_round.py": "one FedDST round on paper",
    "methods/test_shapes.py": "what methods may ask of the protocol",
    "runtime/test_kill.py": "a run that is killed",
    "runtime/test_own_models.py": "modules as people write them",
    "runtime/test_wire_in_the_loop.py": "what travels in a run",
    "studies/test_other_metrics.py": "runs whose metric is not accuracy, in all that shows them",
    "wire/test_fuzz.py": "damaged and hostile payloads",
}
"""Tests of what no single module does, and what they are about."""
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))


def workflow(path: Path) -> dict[str, Any]:
    """A workflow as YAML 1.1 has it, where the key `on` is read as true."""
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text())
    return {"on" if key is True else key: value for key, value in loaded.items()}


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(path)["jobs"].values() for step in job["steps"]]


def test_the_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## \[(.+?)\] - (unreleased|\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)
    assert newest is not None
    versions = {feddst.__version__, newest[1], CITATION["version"], PROJECT["project"]["version"]}
    assert versions == {feddst.__version__}


def test_the_changelog_has_the_kinds_of_change_that_it_should() -> None:
    kinds = re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE)
    assert kinds
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize("work", [CITATION, CITATION["preferred-citation"]])
def test_a_citation_names_a_title_and_authors(work: dict[str, Any]) -> None:
    assert work["title"]
    assert work["type"] in ("software", "conference-paper")
    for author in work["authors"]:
        assert author.keys() in ({"name"}, {"given-names", "family-names"})


def test_the_citation_is_of_this_software_and_of_the_paper() -> None:
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["message"]
    assert CITATION["license"] == PROJECT["project"]["license"]
    paper = CITATION["preferred-citation"]
    assert paper["title"].startswith("Federated Dynamic Sparse Training:")
    assert [author["family-names"] for author in paper["authors"]] == ["Bibikar", "Vikalo", "Wang", "Chen"]
    assert paper["year"] == 2022
    assert paper["url"] in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_make_and_may_only_read(path: Path) -> None:
    content = workflow(path)
    assert content["on"]
    assert content["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and job["timeout-minutes"] for job in content["jobs"].values())
    commands = [step["run"] for step in steps(path) if "run" in step]
    assert commands
    for command in commands:
        called = re.fullmatch(r"make ([\w-]+)", command)
        assert called is not None, f"{command} should be a target of the Makefile"
        assert called[1] in TARGETS
    for step in steps(path):
        assert "run" in step or re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])


def test_workflows_try_the_oldest_python_and_a_newer_one() -> None:
    pythons = workflow(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert pythons[0] == oldest
    assert len(pythons) > 1


def test_targets_are_real_ones_and_the_guide_lists_them_all() -> None:
    [phony] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == TARGETS
    assert set(re.findall(r"^\| `make ([\w-]+)` \|", CONTRIBUTING, re.MULTILINE)) == TARGETS
    assert set(re.findall(r"^([\w-]+):.* ## \w", MAKEFILE, re.MULTILINE)) == TARGETS  # which `make help` lists


def test_markers_are_those_that_the_guide_names() -> None:
    markers = {line.partition(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    assert {marker for marker in markers if f"`{marker}` (" in CONTRIBUTING} == markers


def about(path: Path) -> list[Path]:
    """Where what a test file is named for can be: a module, a package in its folder, or that folder's package."""
    folder = path.parent
    package = MIRRORED.get(folder.parts[0], ROOT / "src/feddst") / folder
    name = path.stem.removeprefix("test_")
    alone = [package / f"{name}.py", package / f"__{name}__.py", package / name]
    return [one for one in (*alone, *([package] if name == folder.name else [])) if one.exists()]


def test_tests_mirror_the_package() -> None:
    tests = [path.relative_to(ROOT / "tests") for path in sorted((ROOT / "tests").glob("*/**/test_*.py"))]
    without = {path.as_posix() for path in tests if path.parts[0] not in PAGES and not about(path)}
    assert without == set(TOGETHER)


def test_a_wheel_with_something_missing_or_something_else_is_refused() -> None:
    script = runpy.run_path(str(ROOT / "scripts/try_wheel.py"))
    faults, suffix = script["faults"], ".cpython-311-x86_64-linux-gnu.so"
    whole = [*script["NEEDED"], *script["licences"](), f"feddst/_native{suffix}"]
    assert faults(whole, suffix) == []
    other = "feddst/_native.cpython-312-x86_64-linux-gnu.so"
    for wrong, words in [
        (whole[1:], f"{whole[0]} is missing"),
        ([name for name in whole if not name.endswith("LICENSE-MNIST")], "LICENSE-MNIST is missing"),
        (whole[:-1], "not none"),
        ([*whole, other], other),
        ([*whole, "tests/test_readme.py"], "tests/test_readme.py does not belong there"),
        ([*whole, "feddst/__pycache__/x.pyc"], "is a by-product"),
    ]:
        [fault] = faults(wrong, suffix)
        assert words in fault


@pytest.mark.parametrize("tool", ["cmake", "nanobind"])
def test_make_installs_what_the_sanitizers_need_and_one_line_says_what_is_missing(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = {re.split(r"\W", line)[0] for line in PROJECT["project"]["optional-dependencies"]["dev"]}
    assert tool in needed
    script = runpy.run_path(str(ROOT / "scripts/sanitize_native.py"))
    if tool == "cmake":
        monkeypatch.setattr("shutil.which", lambda name, path: None)
    else:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["sanitize_native.py"])
    assert script["main"]() == 2
    assert re.fullmatch(rf"error: (CMake|nanobind) is missing: pip install {tool}\n", capsys.readouterr().err)
