"""A run's directory: its config, one metrics row a round, details, the last two checkpoints, and in the end a summary.

A checkpoint is one safetensors file, replaced atomically: however a run dies, a whole one is there. A row is written at
once. Only a checkpoint waits for the disk, until the rows and details of its rounds are there.

Every file holds a checksum, and a damaged one is refused. If the last checkpoint, or a row or detail since the one
before it, is damaged, the run goes on from the one before.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from feddst.core import ClientState, InitialModel, ServerState
from feddst.data import Dataset, Federation, RemoteFederation
from feddst.errors import CheckpointError, DamageError, OptionError
from feddst.runtime import toml
from feddst.runtime.checksums import Journal, seal, seal_text, unseal, unseal_text
from feddst.runtime.config import RunConfig, differences, reaches, stored_options
from feddst.runtime.details import Detail, read_details, write_detail
from feddst.runtime.files import PARTIAL, reading, sync_directory, write_atomically, writing
from feddst.runtime.lock import LOCK
from feddst.runtime.metrics import Row, Summary, read_rows, write_row
from feddst.runtime.tensorfile import pack_sealed, unpack_sealed

__all__ = ["Checkpoint", "RunDirectory", "Standing", "identity_of", "occupied", "write_atomically"]

Standing = Literal["new", "resumed", "finished"]
"""What there is to do for a run here: begin it, go on with it, or nothing."""

_FORMAT, _UNSEALED = 3, 2
"""The format of checkpoints, and the one from before they had checksums."""
_HEADING = "feddst run"
"""The comment at the head of a config."""
_NAMED = 12
"""How many runs a message lists."""
_GROUPS = ("params", "buffers", "masks", "extra")
_KEPT = {"client": "tensors", "feedback": "feedback"}
"""The parts of what a client keeps, by their names in a checkpoint."""
_SOUND = "sound "
"""The prefix of the state that the run may go back to."""
_SHARED = "shared"
"""The group of tensors that several clients keep, stored once, by number."""

_DIGESTS: "WeakKeyDictionary[Dataset, dict[tuple[object, ...], hashlib.blake2b]]" = WeakKeyDictionary()
"""Digests that end with a data set, by the digest before it."""


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on, after the round before `state.round`.

    `bitmaps` are the masks that the server remembers, by name, the oldest first; `holders` says which of them each
    client holds. `sound`, `counted` and `in_vain` are what `Recovery` remembers; `counted` is None in checkpoints
    older than it. `told` is the digest of the details so far, None in checkpoints older than checksums.
    """

    state: ServerState
    clients: Mapping[int, ClientState]
    ledger: Mapping[str, Any]
    bitmaps: Mapping[int, bytes] = field(default_factory=dict)
    holders: Mapping[int, int] = field(default_factory=dict)
    told: str | None = None
    sound: ServerState | None = None
    counted: int | None = None
    in_vain: int = 0


class RunDirectory:
    """Reads and writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.metrics = path / "metrics.jsonl"
        self.details_file = path / "details.jsonl"
        self.checkpoint = path / "checkpoint.safetensors"
        self.earlier_checkpoint = path / "checkpoint-before.safetensors"
        self.summary = path / "summary.json"
        self.name = path / "name.json"
        self._rows, self._details = Journal(self.metrics), Journal(self.details_file)

    def exists(self) -> bool:
        """Whether there is anything here that a new run would overwrite."""
        return occupied(self.path)

    def refuse_occupied(self) -> None:
        """Raise if a new run here would overwrite something."""
        if self.exists():
            raise CheckpointError(f"{self.path} is not empty: resume what is there, or choose another directory")

    def refuse_other(self, config: RunConfig, *, say: bool = False) -> None:
        """Raise unless the run here was begun with this config, apart from how far it goes."""
        changed = differences(self.stored_config(say=say), config)
        if changed:
            raise CheckpointError(f"{self.path} was begun with another config: {'; '.join(changed)}")

    def create(self, config: RunConfig) -> None:
        """Begin a run here."""
        self.refuse_occupied()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot create {self.path}: {error.strerror or error}") from None
        self._write_config(config)

    def stored_config(self, *, say: bool = False) -> RunConfig:
        """The config that the run here was begun with. With `say`, names of earlier versions in it are mentioned."""
        if not self.config.is_file():
            raise CheckpointError(f"{self.path} holds no run: {self.config.name} is missing{self._advice()}")
        with reading(self.config):
            sound = unseal_text(self.config.read_bytes(), f"# {_HEADING}".encode()).sound
        if not sound:
            raise DamageError(
                f"{self.config} is damaged, or was edited: its first line has the checksum of what was written. Look "
                "through it; without that line the rest is believed as it is"
            )
        stored = toml.read(self.config)
        try:
            return stored_options(stored, str(self.config) if say else "")
        except OptionError as error:
            raise CheckpointError(f"{self.config}: {error}") from None

    def _advice(self) -> str:
        """Which runs lie one level below, as those of a comparison do."""
        found = sorted(config.parent.name for config in self.path.glob(f"*/{self.config.name}"))
        rest = [f"{len(found) - _NAMED} more"] if len(found) > _NAMED else []
        return f"; it holds runs: choose one of {', '.join(found[:_NAMED] + rest)}" if found else ""

    def reopen(self, config: RunConfig) -> None:
        """Go on here with `config`."""
        self.refuse_other(config, say=True)
        self.summary.unlink(missing_ok=True)
        self._write_config(config)

    def write_name(self, name: str) -> None:
        """Store the name by which clients on other machines know the run."""
        write_atomically(self.name, seal(json.dumps({"name": name}).encode()) + b"\n")

    def stored_name(self) -> str:
        """The name by which clients on other machines know the run; empty if it was never given one."""
        if not self.name.is_file():
            return ""
        with reading(self.name):
            found = unseal(self.name.read_bytes())
        try:
            if found.sound and isinstance(name := json.loads(found.content)["name"], str):
                return name
        except (ValueError, TypeError, KeyError, RecursionError):
            pass  # one error for both
        raise DamageError(f"{self.name} is damaged: what clients keep of the run is stored by the name in it")

    def save(self, checkpoint: Checkpoint, identity: str) -> None:
        """Write a checkpoint, once rows and details so far are on the disk. The checkpoint before it is kept."""
        for journal in (self._details, self._rows):
            journal.settle()
        state = checkpoint.state
        tensors = _tensors_of(state)
        for client, kept in sorted(checkpoint.clients.items()):
            for kind in _KEPT:
                tensors |= {f"{kind} {client}/{name}": value for name, value in getattr(kept, _KEPT[kind]).items()}
        if checkpoint.sound is not None:
            tensors |= {f"{_SOUND}{key}": value for key, value in _tensors_of(checkpoint.sound).items()}
        tensors = _on_cpu(tensors)
        shared = _take_out_shared(tensors)
        unmoved = _take_out_unmoved(tensors)
        for name, bitmap in checkpoint.bitmaps.items():
            tensors[f"bitmap/{name}"] = torch.frombuffer(bytearray(bitmap), dtype=torch.uint8)
        about = {
            "format": _FORMAT,
            "identity": identity,
            "round": state.round,
            "seed": state.seed,
            "budgets": dict(state.budgets),
            "ledger": dict(checkpoint.ledger),
            "bitmaps": list(checkpoint.bitmaps),
            "holders": list(checkpoint.holders.items()),
            "shared": shared,
            "told": checkpoint.told,
            "sound": _about_sound(checkpoint.sound, unmoved),
            "counted": checkpoint.counted,
            "in_vain": checkpoint.in_vain,
        }
        write_atomically(self.checkpoint, pack_sealed(tensors, json.dumps(about)), keep=self.earlier_checkpoint)

    def checkpoints(self) -> list[Path]:
        """The checkpoints here, the last one first."""
        return [path for path in (self.checkpoint, self.earlier_checkpoint) if path.is_file()]

    def load(self, identity: str, path: Path | None = None) -> Checkpoint | None:
        """The last checkpoint, or None if the run died before it wrote one; or the one at `path`."""
        path = path or self.checkpoint
        if not path.is_file():
            return None
        about, tensors = read_checkpoint(path)
        if about.get("identity") != identity:
            raise CheckpointError(
                f"{path} was written with another model or other data; what began in Python goes on there"
            )
        try:
            return _restored(about, tensors)
        except (KeyError, ValueError, TypeError) as error:
            raise DamageError(f"{path} is damaged: {error}") from None

    def go_back(self) -> None:
        """Replace the last checkpoint by the one before it."""
        with writing(self.checkpoint):
            os.replace(self.earlier_checkpoint, self.checkpoint)
        sync_directory(self.path)

    def way_back(self) -> str:
        """What to do about damage that no checkpoint repairs."""
        return (
            f"the same run can be made again in another directory (feddst run --config {self.config} --out DIRECTORY) "
            f"or, if it is part of a comparison or a study, by the same command once {self.path} is deleted"
        )

    def _write_config(self, config: RunConfig) -> None:
        write_atomically(self.config, seal_text(toml.dump(config, _HEADING).encode()))

    def append(self, row: Row, detail: Detail | None = None) -> None:
        """Add a round's row, and its detail if there is one."""
        if detail is not None:
            self._details.append(write_detail(detail))
        self._rows.append(write_row(row))

    def rows(self, last_round: int | None = None) -> list[Row]:
        """The rows so far, or those up to a round; raises if a finished run lacks some."""
        rows = read_rows(self.metrics, last_round) if self.metrics.is_file() else []
        summary = self.finished() if last_round is None else None
        if summary is not None and (not rows or rows[-1].round != summary.rounds):
            raise DamageError(f"{self.metrics} is damaged: it does not end with the run's last round, {summary.rounds}")
        return rows

    def details(self, last_round: int | None = None) -> list[Detail]:
        """The details so far; none in the directory of a run that kept none."""
        return read_details(self.details_file, last_round) if self.details_file.is_file() else []

    def rewrite(self, rows: Sequence[Row], details: Sequence[Detail]) -> None:
        """Replace all rows and details: rounds after the last checkpoint are played again, with the same result."""
        if self.details_file.is_file():
            self._details.replace([write_detail(detail) for detail in details])
        self._rows.replace([write_row(row) for row in rows])

    def finish(self, summary: Summary) -> None:
        """Write the summary: the run is complete."""
        write_atomically(self.summary, seal(json.dumps(summary.as_dict(), indent=2).encode()) + b"\n")

    def complete(self, wanted: RunConfig) -> Summary | None:
        """The summary of a run that has gone as far as `wanted` asks, else None."""
        return self.finished() if reaches(self.stored_config(), wanted) else None

    def standing(self, wanted: RunConfig) -> Standing:
        """How the run here stands; raises if it is another one than `wanted`."""
        if not self.exists():
            return "new"
        self.refuse_other(wanted)
        return "finished" if self.complete(wanted) is not None else "resumed"

    def cap_reached(self) -> float:
        """The upload cap that ended the run here, in GiB; 0 if none did."""
        summary = self.finished()
        return self.stored_config().cap_gib if summary is not None and summary.stopped_by == "cap" else 0.0

    def finished(self) -> Summary | None:
        """The summary of a complete run, else None."""
        if not self.summary.is_file():
            return None
        with reading(self.summary):
            found = unseal(self.summary.read_bytes())
        try:
            if found.sound:
                return Summary.from_dict(json.loads(found.content))
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass  # one error for both
        raise DamageError(f"{self.summary} is damaged, or of another version; delete it to resume the run")


def occupied(path: Path) -> bool:
    """Whether there is something at `path` to lose; leftovers of a killed process do not count."""
    if not path.is_dir():
        return path.exists()
    return any(entry.name != LOCK and not entry.name.endswith(PARTIAL) for entry in path.iterdir())


def identity_of(model: InitialModel, federation: Federation | RemoteFederation) -> str:
    """A digest of the model's shape, the data and its split, to detect a checkpoint made with others."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in [*model.params.items(), *model.buffers.items()]:
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
    if isinstance(federation, RemoteFederation):
        digest.update(federation.description_of_data())
        return digest.hexdigest()
    digest, partition = _with_data(digest, federation.dataset), federation.partition
    for indices in (*partition.train, *partition.test):
        digest.update(f"{len(indices)}".encode())
        digest.update(np.ascontiguousarray(indices).data)
    return digest.hexdigest()


def _with_data(digest: "hashlib.blake2b", dataset: Dataset) -> "hashlib.blake2b":
    """A digest with a data set added; computed once for the same two, since runs share their data."""
    parts = dataset.train, dataset.test
    known = _DIGESTS.setdefault(dataset, {})
    before = digest.digest(), *(version for part in parts for version in part.writes)
    if before not in known:
        digest = digest.copy()
        for part in parts:
            for piece in part.content():
                digest.update(piece)
        digest.update(f"{dataset.mean} {dataset.std}".encode())
        known[before] = digest
    return known[before].copy()


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A checkpoint's description and its tensors."""
    try:
        tensors, text, sealed = unpack_sealed(path.read_bytes())
        about = json.loads(text)
    except (CheckpointError, ValueError, RecursionError, OSError) as error:
        raise DamageError(f"{path} is damaged: {error}") from None
    found = about.get("format") if isinstance(about, dict) else None
    if found not in (_FORMAT, _UNSEALED):
        raise CheckpointError(f"{path} has checkpoint format {found}, this version reads {_FORMAT}")
    if not sealed and found != _UNSEALED:
        raise DamageError(f"{path} is damaged: its checksum is missing")
    return about, tensors


def _tensors_of(state: ServerState) -> dict[str, Tensor]:
    """All tensors of a state, by group and name."""
    return {f"{group}/{name}": value for group in _GROUPS for name, value in getattr(state, group).items()}


def _about_sound(sound: ServerState | None, unmoved: list[str]) -> dict[str, Any] | None:
    """The state that a run may go back to, without its tensors; `unmoved` ones are those of the current state."""
    return None if sound is None else {"round": sound.round, "budgets": dict(sound.budgets), "unmoved": unmoved}


def _take_out_unmoved(tensors: dict[str, Tensor]) -> list[str]:
    """Remove tensors of the state to go back to that equal those of the current state; returns their names."""
    keys = [key for key in tensors if key.startswith(_SOUND)]
    last = {key: tensors.get(key.removeprefix(_SOUND)) for key in keys}
    found = [key for key in keys if (now := last[key]) is not None and torch.equal(now, tensors[key])]
    for key in found:
        del tensors[key]
    return [key.removeprefix(_SOUND) for key in found]


def _take_out_shared(tensors: dict[str, Tensor]) -> list[list[str]]:
    """Store each bitmap that clients keep once; returns the names that each stands for, by number."""
    found: dict[bytes, list[str]] = {}
    for key in [key for key in tensors if key.startswith("feedback ") and tensors[key].dtype == torch.uint8]:
        found.setdefault(tensors[key].numpy().tobytes(), []).append(key)
    for number, keys in enumerate(found.values()):
        tensors[f"{_SHARED}/{number}"] = tensors[keys[0]]
        for key in keys:
            del tensors[key]
    return list(found.values())


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors on the CPU, with one transfer for each device and dtype."""
    kinds: dict[object, list[str]] = {}
    for name, value in tensors.items():
        kinds.setdefault((value.device, value.dtype), []).append(name)
    found = dict(tensors)
    for names in kinds.values():
        values = [tensors[name] for name in names]
        if values[0].device.type != "cpu":
            row = torch.cat([value.detach().reshape(-1) for value in values]).cpu()
            pieces = row.split_with_sizes([value.numel() for value in values])
            found |= {n: piece.view(v.shape) for n, piece, v in zip(names, pieces, values, strict=True)}
    return found


def _restored(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Checkpoint:
    sound = about.get("sound")
    there = {f"{_SOUND}{key}": tensors[key] for key in sound["unmoved"]} if sound else {}
    old_groups = [f"{_SOUND}{group}" for group in _GROUPS]
    groups: dict[str, dict[str, Tensor]] = {group: {} for group in (*_GROUPS, *old_groups, "bitmap")}
    clients: dict[int, dict[str, dict[str, Tensor]]] = {}
    shared = {key: f"{_SHARED}/{number}" for number, keys in enumerate(about.get("shared", [])) for key in keys}
    everything = {**tensors, **there, **{key: tensors[source] for key, source in shared.items()}}
    for key, value in everything.items():
        group, _, name = key.partition("/")
        if group == _SHARED:
            continue
        kind, _, client = group.rpartition(" ")
        if kind in _KEPT:
            clients.setdefault(int(client), {}).setdefault(_KEPT[kind], {})[name] = value
        else:
            groups[group][name] = value
    bitmaps = groups.pop("bitmap")
    old = {group: groups.pop(f"{_SOUND}{group}") for group in _GROUPS}
    return Checkpoint(
        ServerState(round=about["round"], seed=about["seed"], budgets=about["budgets"], **groups),
        {client: ClientState(**kept) for client, kept in clients.items()},
        about["ledger"],
        {name: bitmaps[str(name)].numpy().tobytes() for name in about["bitmaps"]},
        dict(about["holders"]),
        about.get("told"),
        ServerState(round=sound["round"], seed=about["seed"], budgets=sound["budgets"], **old) if sound else None,
        about.get("counted"),
        about.get("in_vain", 0),
    )
