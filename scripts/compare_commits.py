"""Show that two commits train the same weights, bit for bit.

    python scripts/compare_commits.py digest COMMIT --out base.json
    python scripts/compare_commits.py digest --here --out now.json
    python scripts/compare_commits.py compare base.json now.json

`digest` plays small runs on MNIST with the package of a commit, or with the one of this checkout as it is, and writes a
hash of each tensor in their last checkpoints and in what Flower's clients keep, with the bytes sent and the accuracies
of each round. `compare` says what differs between two digests; its exit status is 1 if anything does, and 2 if they
cannot be compared since they were made on machines or with libraries that are not alike.

Options and methods of the cases have the names that they had at the commit 3c2f083. They come from TOML files, so that
names are read as those in any config from that time. `feddst._native` is compiled if its sources are not those of this
checkout, else copied from here.
"""

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUN, FLOWER = ("run",), ("flower", "simulate")
OWN_NETWORK = "own-network"
"""The word by which `play_cases.py` trains a network of its own through the Python API."""
ROW = ("round", "accuracy", "accuracy_personal", "upload_bytes", "download_bytes")
GROUPS = ("params", "buffers", "masks", "extra", "client", "feedback")
"""What is hashed of a checkpoint: the server's state, and what it keeps of clients, as in `client 3/fc1.weight`."""
ALIKE = ("cpu", "system", "python", "torch", "numpy", "zlib")
"""What must be the same for two digests to be compared."""

Options = Mapping[str, Any]


class CaseError(Exception):
    """A digest cannot be made, or not be compared."""


@dataclass(frozen=True)
class Case:
    """A small run: its options, the command that plays it, and the rounds after which it stops, to be resumed."""

    name: str
    options: Options
    command: tuple[str, ...] = RUN
    stops: tuple[int, ...] = (3,)


SMALL = {
    "eval_every": 2,
    "data.clients": 6,
    "data.images_per_class": 8,
    "data.held_out": 200,
    "cohort.size": 3,
    "local.epochs": 2,
    "local.batch": 6,
    "engine.workers": 1,
}
"""Six clients with 16 images each, in the first of three rounds."""

_FEDDST = {"readjust.every": 2, "readjust.alpha": 0.2}
_SPROUT = {"sprout.every": 1, "sprout.alpha": 0.2, "sprout.begin": 1, "sprout.end": 3, "sprout.start": 0.9}
METHODS: dict[str, Options] = {
    "fedavg": {},
    "fedavgm": {},
    "fedavgm-server": {},
    "fedprox": {"cohort.stragglers": 0.5, "proximal.mu": 0.5},
    "fedadagrad": {},
    "fedadam": {},
    "fedyogi": {},
    "randommask": {},
    "randommask+fedprox": {},
    "randommask+fedadam": {},
    "snip": {},
    "grasp": {},
    "prunefl": {"prunefl.every": 1, "prunefl.layer_times": "flops", "prunefl.initial_rounds": 2},
    "feddst": _FEDDST,
    "feddst+fedprox": _FEDDST | {"cohort.stragglers": 0.5},
    "feddst+fedadagrad": _FEDDST,
    "feddst+fedadam": _FEDDST,
    "feddst+fedyogi": _FEDDST,
    "sprout": _SPROUT,
    "sprout+fedadam": _SPROUT,
    "lotteryfl": {"lottery.threshold": 0.0},
    "lg-fedavg": {"lg.shared_layers": 2},
    "sign-sgd": {"local.epochs": 1},
}
"""Every method, with options under which it does in three rounds what sets it apart."""

CODECS = ("bfloat16", "float16", "q8", "q4", "q2", "top8", "top16", "top32")
DOWNLOADS = ("bfloat16", "float16", "q8", "q4", "q2")

VARIANTS: dict[str, Options] = {
    "fedprox detached": {"method": "fedprox", "proximal.gradient": "detached", "cohort.stragglers": 1.0},
    "feddst+fedprox mu 0.01": {"method": "feddst+fedprox", "proximal.mu": 0.01, **_FEDDST},
    "feddst packed": {**_FEDDST, "wire.values": "q4", "wire.download": "q4", "wire.packing": "deflate"},
    "feddst feedback q2": {**_FEDDST, "wire.values": "q2", "wire.feedback": True},
    "feddst feedback top16": {**_FEDDST, "wire.values": "top16", "wire.feedback": True},
    "feddst masks as bitmaps": {**_FEDDST, "wire.mask": "bitmap"},
    "feddst masks as positions": {**_FEDDST, "wire.mask": "positions", "wire.remember": 0},
    "feddst averaged": {**_FEDDST, "averaged": 0.9},
    "sprout averaged": {"method": "sprout", **_SPROUT, "averaged": 0.5},
    "feddst copies": {**_FEDDST, "data.copies": 3},
    "feddst copies, shifted only": {**_FEDDST, "data.copies": 3, "data.shift_only": True},
    "feddst dirichlet": {**_FEDDST, "data.partition": "dirichlet", "data.clients": 300, "data.beta": 0.5},
    "feddst iid": {**_FEDDST, "data.partition": "iid"},
    "feddst as published": {
        "readjust.every": 2,
        "readjust.alpha": 0.2,
        "accounting": "published",
        "data.partition": "shards",
        "model.head": "softmax",
        "cohort.sampling": "with-replacement",
        "local.order": "fixed",
        "local.weigh_by": "batches",
        "sparsity.distribution": "erk-published",
        "readjust.counting": "published",
        "readjust.dropped": "resolved",
        "growth.grow_from": "any",
        "growth.images": "last-batch",
        "growth.weights": "unpruned",
    },
    "feddst after epoch 1": {**_FEDDST, "readjust.after_epoch": 1, "readjust.decay": "linear"},
    "feddst random growth": {**_FEDDST, "growth.rule": "random", "sparsity.distribution": "er"},
    "feddst ballot": {**_FEDDST, "ballot.grown": "all", "ballot.keep": "most-held", "local.weigh_by": "equal"},
    "feddst dense layer": {**_FEDDST, "model.dense": ["fc2.weight"], "sparsity.distribution": "uniform"},
    "feddst+fedadam layer": {"method": "feddst+fedadam", **_FEDDST, "adaptive.entering": "layer"},
    "sprout gradient": {"method": "sprout", **_SPROUT, "sprout.every": 2, "sprout.where": "gradient"},
    "sprout product": {"method": "sprout", **_SPROUT, "sprout.drop": "product"},
    "sprout movement": {"method": "sprout", **_SPROUT, "sprout.where": "movement", "sprout.layers": "movement"},
    "sprout scarce": {"method": "sprout", **_SPROUT, "sprout.where": "scarce", "sprout.grace": 2},
    "grasp as published": {
        "method": "grasp",
        "oneshot.client": "first",
        "oneshot.kept": "S",
        "oneshot.server_prunes": True,
        "oneshot.images": "minibatches",
    },
    "snip by layer": {"method": "snip", "oneshot.scope": "layer"},
    "prunefl published": {"method": "prunefl", **METHODS["prunefl"], "prunefl.variant": "published"},
    "prunefl mean": {"method": "prunefl", **METHODS["prunefl"], "prunefl.importance": "mean"},
    "two threads": {**_FEDDST, "engine.workers": 2},
    "two processes": {**_FEDDST, "engine.workers": 2, "engine.kind": "reference"},
}
"""What else changes what is sent or trained, or how, on the native engine unless it says another."""

STACKED = ("fedavgm", "fedprox", "randommask", "feddst", "feddst+fedadam", "sprout", "lotteryfl", "sign-sgd")
IN_FLOWER = ("feddst", "fedprox", "lotteryfl", "lg-fedavg", "sprout", "prunefl")


def cases() -> Iterator[Case]:
    """All cases."""
    for method, own in METHODS.items():
        for engine in ("native", "reference"):
            yield Case(f"{method}, {engine}", {"method": method, **own, "engine.kind": engine})
    for codec in CODECS:
        yield Case(f"feddst {codec}", {**_FEDDST, "wire.values": codec})
    for codec in DOWNLOADS:
        yield Case(f"feddst download {codec}", {**_FEDDST, "wire.values": "q4", "wire.download": codec})
    for name, options in VARIANTS.items():
        yield Case(name, options)
    for codec in ("float32", "q4"):
        options = {**_FEDDST, "wire.values": codec, "wire.download": codec, "engine.kind": "reference"}
        yield Case(f"feddst {codec} both ways, reference", options)
    for method in ("feddst", "feddst+fedadam", "lotteryfl", "prunefl"):
        options = {"method": method, **METHODS[method]}
        yield Case(f"{method}, resumed twice", options, stops=(1, 2, 4))
    resumed = {**_FEDDST, "averaged": 0.9, "wire.values": "q4", "wire.feedback": True}
    yield Case("feddst averaged with feedback, resumed", resumed, stops=(2, 3))
    for method in STACKED:
        options = {"method": method, **METHODS[method], "engine.kind": "stacked"}
        yield Case(f"{method}, stacked", options)
    yield Case("feddst q4 both ways, stacked", {**_FEDDST, **_both("q4"), "engine.kind": "stacked"})
    for engine in ("reference", "stacked"):
        yield Case(f"own network, {engine}", {**_FEDDST, "engine.kind": engine}, (OWN_NETWORK,))
    tiny = {"data.images_per_class": 2, "data.clients": 1, "cohort.size": 1, "data.held_out": 20, "local.epochs": 1}
    yield Case("resnet18 averaged", {**_FEDDST, **tiny, "model.name": "resnet18", "averaged": 0.5}, stops=(2,))
    for method in IN_FLOWER:
        yield Case(f"{method}, Flower", {"method": method, **METHODS[method]}, FLOWER)
    quantised = {**_FEDDST, **_both("q4"), "wire.feedback": True}
    yield Case("feddst q4 with feedback, Flower, resumed", quantised, FLOWER, (2, 4))
    yield Case("lotteryfl, Flower, resumed", {"method": "lotteryfl", **METHODS["lotteryfl"]}, FLOWER, (2, 4))


def _both(codec: str) -> Options:
    return {"wire.values": codec, "wire.download": codec}


@dataclass(frozen=True)
class Played:
    """A case in a folder of its own, and what is played there."""

    case: Case
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "run"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def prepare(self) -> dict[str, Any]:
        """Write the config; returns what `play_cases.py` needs."""
        self.folder.mkdir()
        config, case = self.folder / "config.toml", self.case
        options = {"rounds": case.stops[0], **SMALL, **case.options}
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items()))
        if case.command == (OWN_NETWORK,):
            commands = [[OWN_NETWORK, str(config), str(self.out)]]
        else:
            begin = [*case.command, "--config", str(config), "--out", str(self.out)]
            again = [*case.command, "--resume", "--out", str(self.out), "--rounds"]
            commands = [begin, *([*again, str(stop)] for stop in case.stops[1:])]
        return {"name": case.name, "log": str(self.log), "commands": commands}

    def digest(self, code: int) -> dict[str, Any]:
        """The case's digest, or why it failed."""
        if code:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            return {"failed": f"exit status {code}: {lines[-1]}"}
        tensors = checkpoint_tensors((self.out / "checkpoint.safetensors").read_bytes())
        for path in sorted((self.out / "clients").glob("*.safetensors")):
            kept, _ = safetensors(path.read_bytes())
            client = path.stem.rpartition("-")[2]  # before it comes the run's identity
            tensors |= {f"flower {client} {name}": value for name, value in kept.items()}
        rows = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        return {"tensors": dict(sorted(tensors.items())), "rows": [{key: row[key] for key in ROW} for row in rows]}


def checkpoint_tensors(content: bytes) -> dict[str, str]:
    """Hashes of what a checkpoint holds of the server and of clients; what clients share is there for each."""
    found, metadata = safetensors(content)
    for number, names in enumerate(json.loads(metadata["feddst"]).get("shared", [])):
        found |= dict.fromkeys(names, found[f"shared/{number}"])
    return {name: value for name, value in found.items() if name.partition("/")[0].partition(" ")[0] in GROUPS}


def safetensors(content: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Dtype, shape and a hash of the bytes of each tensor in such a file, and the file's metadata."""
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    metadata = header.pop("__metadata__", {})
    found = {}
    for name, about in header.items():
        start, end = (begin + offset for offset in about["data_offsets"])
        digest = hashlib.blake2b(content[start:end], digest_size=8).hexdigest()
        found[name] = f"{about['dtype']} {'x'.join(map(str, about['shape'])) or '1'} {digest}"
    return found, metadata


@dataclass(frozen=True)
class Package:
    """The package that is to be digested: the directory it is imported from, and its commit."""

    source: Path
    commit: str


def package_of(name: str, folder: Path) -> Package:
    """The package of a commit, unpacked into a folder, with its compiled module."""
    commit = _run(["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]).decode().strip()
    content = _run(["git", "-C", str(ROOT), "archive", commit, "src", "native", "CMakeLists.txt"])
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")
    if _native_sources(folder) == _native_sources(ROOT):
        compiled = sorted((ROOT / "src/feddst").glob("_native.*.so"))
        if not compiled:
            raise CaseError("feddst._native is not compiled here: `make` does it")
    else:
        print("compiling feddst._native, whose sources are others than here", flush=True)
        compiled = [compile_native(folder, folder / "build")]
    for path in compiled:
        shutil.copy(path, folder / "src/feddst")
    return Package(folder / "src", commit)


def compile_native(source: Path, build: Path) -> Path:
    """Compile `feddst._native` from sources; the module."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    cmake = shutil.which("cmake", path=places)
    if cmake is None:
        raise CaseError("CMake is missing: pip install cmake")
    nanobind = _run([sys.executable, "-m", "nanobind", "--cmake_dir"]).decode().strip()
    options = [f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind}", "-DCMAKE_BUILD_TYPE=Release"]
    _run([cmake, "-S", str(source), "-B", str(build), *options])
    _run([cmake, "--build", str(build)])
    [module] = build.glob("_native.*.so")
    return module


def _native_sources(folder: Path) -> dict[str, bytes]:
    files = [folder / "CMakeLists.txt", *(folder / "native").glob("*")]
    return {path.name: path.read_bytes() for path in files if path.is_file()}


def _run(command: Sequence[str]) -> bytes:
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise CaseError(f"{' '.join(command)} failed:\n{done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def play(package: Package, wanted: Sequence[Case]) -> dict[str, Any]:
    """The digests of these cases, by name, played by a package with one thread."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        played = {case.name: Played(case, folder / str(number)) for number, case in enumerate(wanted)}
        (folder / "cases.json").write_text(json.dumps([one.prepare() for one in played.values()]))
        program = [sys.executable, str(Path(__file__).with_name("play_cases.py")), str(folder / "cases.json")]
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment = {**os.environ, **threads, "PYTHONPATH": str(package.source)}
        found: dict[str, Any] = {}
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder) as process:
            assert process.stdout is not None
            for line in map(json.loads, process.stdout):
                if "loaded" in line:
                    _check_loaded(line["loaded"], package.source)
                else:
                    found[line["name"]] = played[line["name"]].digest(line["code"])
                    shutil.rmtree(played[line["name"]].folder)
                    print(f"{line['name']}: {found[line['name']].get('failed', 'played')}", flush=True)
        if process.returncode:
            raise CaseError(f"play_cases.py ended with the exit status {process.returncode}")
    return found


def _check_loaded(files: Sequence[str], source: Path) -> None:
    for file in files:
        if not Path(file).is_relative_to(source):
            raise CaseError(f"Python loads {file}, which is not in {source}")


@dataclass
class Comparison:
    """For each case of two digests what differs, which is nothing where it is the same."""

    differences: dict[str, list[str]] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        return bool(self.differences) and not any(self.differences.values())


def compare(base: Mapping[str, Any], now: Mapping[str, Any]) -> Comparison:
    """Compare two digests case by case; raises `CaseError` if a difference could be the machine's."""
    for key in ALIKE:
        old, new = base["machine"].get(key), now["machine"].get(key)
        if old != new:
            raise CaseError(f"the digests were made with another {key} each, {old} and {new}: make the first one here")
    names = dict.fromkeys([*base["cases"], *now["cases"]])
    return Comparison({name: differences(base["cases"].get(name), now["cases"].get(name)) for name in names})


def differences(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[str]:
    """What differs between two digests of one case; a case that failed is never the same."""
    if old is None or new is None:
        return [f"only the {'second' if old is None else 'first'} digest has this case"]
    places = ("first", old), ("second", new)
    if failed := [f"failed in the {place}: {one['failed']}" for place, one in places if "failed" in one]:
        return failed
    found = _entries("", old["tensors"], new["tensors"])
    if len(old["rows"]) != len(new["rows"]):
        found.append(f"rounds: {len(old['rows'])}, now {len(new['rows'])}")
    for before, after in zip(old["rows"], new["rows"], strict=False):
        found += _entries(f"round {before['round']} ", before, after)
    return found


def _entries(heading: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys([*old, *new])
    absent = "absent"
    return [
        f"{heading}{name}: {old.get(name, absent)}, now {new.get(name, absent)}"
        for name in names
        if old.get(name, absent) != new.get(name, absent)
    ]


SHOWN = 8
"""How many differences of a case the table shows."""


def table(found: Comparison) -> str:
    """A line for each case, and below it what differs."""
    width = max(map(len, found.differences), default=0)
    lines = []
    for name, differs in found.differences.items():
        lines.append(f"{name:<{width}}  {'differs' if differs else 'same'}")
        lines += [f"  {line}" for line in differs[:SHOWN]]
        lines += [f"  and {len(differs) - SHOWN} more"] if len(differs) > SHOWN else []
    count = sum(map(bool, found.differences.values()))
    return "\n".join([*lines, f"{count} of {len(found.differences)} cases differ"])


def write(path: Path, record: Mapping[str, Any]) -> None:
    """A record as JSON with a line for each case."""
    head = json.dumps({**record, "cases": None}, indent=1, ensure_ascii=False)
    lines = ",\n".join(
        f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(value)}" for name, value in record["cases"].items()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head.replace('"cases": null', f'"cases": {{\n{lines}\n }}') + "\n")


def digest_command(args: argparse.Namespace) -> int:
    """Make a digest. The exit status is 1 if a case failed."""
    from feddst.runtime.machine import commit, machine

    wanted = [case for case in cases() if args.only in case.name]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        package = Package(ROOT / "src", commit()) if args.here else package_of(args.commit, Path(name).resolve())
        compiled = time.monotonic()
        found = play(package, wanted)
    record = {
        "command": " ".join(["python", *sys.argv]),
        "commit": package.commit,
        "machine": machine(),
        "seconds_to_prepare": round(compiled - began, 1),
        "seconds": round(time.monotonic() - compiled, 1),
        "cases": found,
    }
    write(args.out, record)
    failed = [name for name, one in found.items() if "failed" in one]
    print(f"{len(found)} cases, {len(failed)} failed; {record['seconds']} s; {args.out}")
    return 1 if failed else 0


def compare_command(args: argparse.Namespace) -> int:
    """Compare two digests. The exit status is 1 if they differ."""
    base, now = (json.loads(path.read_text()) for path in (args.base, args.now))
    found = compare(base, now)
    print(table(found))
    if args.out is not None:
        record = {
            "command": " ".join(["python", *sys.argv]),
            "base": base["commit"],
            "now": now["commit"],
            "machine": now["machine"],
            "seconds": {"base": base["seconds"], "now": now["seconds"]},
            "same": found.same,
            "cases": found.differences,
        }
        write(args.out, record)
    return 0 if found.same else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    digest = commands.add_parser("digest", help="play the cases with one commit")
    which = digest.add_mutually_exclusive_group(required=True)
    which.add_argument("commit", nargs="?", help="the commit")
    which.add_argument("--here", action="store_true", help="this checkout as it is, and its compiled module")
    digest.add_argument("--only", default="", help="only cases with this in their names")
    digest.add_argument("--out", type=Path, required=True, help="where to write the digest")
    digest.set_defaults(action=digest_command)
    comparing = commands.add_parser("compare", help="compare two digests")
    comparing.add_argument("base", type=Path)
    comparing.add_argument("now", type=Path)
    comparing.add_argument("--out", type=Path, help="where to write a record of it")
    comparing.set_defaults(action=compare_command)
    args = parser.parse_args()
    try:
        status: int = args.action(args)
    except (CaseError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
