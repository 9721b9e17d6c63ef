"""Who imports whom is as CONTRIBUTING.md says."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SOURCES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "src/feddst").rglob("*.py"))
}
LAYERS = {
    f"feddst.{package}": int(number)
    for number, packages in re.findall(r"^\| (\d+) \| (.*?) \|", PAGE, re.MULTILINE)
    for package in re.findall(r"`([\w.]+)`", packages)
}
FACE = {"feddst", "feddst.__main__", "feddst.plugins"}
"""What gathers the package for users, and lets other packages add to it: in no layer."""
ANYWHERE = ("feddst.__version__", "feddst._native")
EXCEPTIONS = set(re.findall(r"^- `(feddst[\w.]+)` imports `(feddst[\w.]+)`", PAGE, re.MULTILINE))
PURE = 9
TRITON = tuple(f"feddst.engines.stacked.{part}" for part in ("chain", "graphed", "kernels"))


def imports(module: str) -> Iterator[str]:
    """The full names of all that a module imports, wherever in its text; of `import feddst`, what it uses of it."""
    tree = ast.parse(SOURCES[module].read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name != "feddst")
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(module.split(".")[: -node.level]) if node.level else ""
            source = ".".join(filter(None, (package, node.module)))
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "feddst":
            yield f"feddst.{node.attr}"


def room(name: str) -> str:
    """The package of a layer in which this is, the innermost; empty if it is in none."""
    return max((package for package in LAYERS if f"{name}.".startswith(f"{package}.")), key=len, default="")


def own_imports(module: str) -> Iterator[str]:
    return (name for name in imports(module) if name.startswith("feddst.") and not name.startswith(ANYWHERE))


def excepted(module: str, name: str) -> bool:
    return any(module == importer and f"{name}.".startswith(f"{imported}.") for importer, imported in EXCEPTIONS)


def test_every_module_has_a_layer() -> None:
    assert [module for module in SOURCES if not room(module) and module not in FACE] == []
    assert [package for package in LAYERS if package not in SOURCES] == []


def test_modules_import_from_below() -> None:
    """Or from their own room; never what users import, `from feddst import run`, which is in no layer."""
    wrong = [
        f"{module} imports {name}"
        for module in SOURCES
        if module not in FACE
        for name in own_imports(module)
        if not excepted(module, name)
        and room(name) != room(module)
        and not LAYERS.get(room(name), len(LAYERS)) < LAYERS[room(module)]
    ]
    assert wrong == []


def test_the_package_does_without_the_benchmarks() -> None:
    assert [module for module in SOURCES for name in imports(module) if f"{name}.".startswith("benchmarks.")] == []


def test_every_exception_is_needed() -> None:
    assert len(EXCEPTIONS) == 1
    for importer, imported in EXCEPTIONS:
        assert LAYERS[room(imported)] > LAYERS[room(importer)]
        assert any(f"{name}.".startswith(f"{imported}.") for name in own_imports(importer))


def test_the_lower_layers_need_torch_and_numpy_alone() -> None:
    """Every other package that is imported anywhere is out of reach; each module is imported."""
    known = {"torch", "numpy", "feddst", *sys.stdlib_module_names}
    others = {name.partition(".")[0] for module in SOURCES for name in imports(module)} - known
    assert {"matplotlib", "flwr", "rich", "triton"} <= others
    lower = [module for module in SOURCES if LAYERS.get(room(module), len(LAYERS)) <= PURE]
    pure = [module for module in lower if not module.startswith(TRITON) and not module.endswith("__main__")]
    program = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({sorted(others)!r}))
for name in {["feddst", *pure]!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


[TABLE] = re.findall(r"^\| to add \| touch \| look at \|\n\|[-|]+\|\n((?:\|.+\n)+)", PAGE, re.MULTILINE)
TOUCHED = [row.strip("| ").split(" | ") for row in TABLE.splitlines()]


def test_what_one_touches_is_there() -> None:
    assert len(TOUCHED) > 10
    for _, touched, example in TOUCHED:
        for name in re.findall(r"`([\w/]+\.\w+)`", f"{touched} {example}"):
            path = ROOT / name if name.startswith("native/") else ROOT / "src/feddst" / name
            assert path.exists() != (path.stem == "x"), name
            assert path.parent.is_dir()


@pytest.mark.parametrize("what", ["method", "loss", "optimizer", "aggregator", "data source", "codec"])
def test_few_files_are_touched_for_what_is_often_added(what: str) -> None:
    [touched] = [touched for name, touched, _ in TOUCHED if what in name]
    assert 1 <= len(re.findall(r"`[\w/]+\.py`", touched)) <= 3
