"""What a client keeps from one round to the next: the mask it was sent last, its method's state, and what was left
out of its updates.

It is stored by run and client: in Flower's context, which lasts as long as the node's process, or, where the node's
config names a `state-dir`, in a file that outlives it.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from flwr.app import ConfigRecord, Context

from feddst.core import ClientState
from feddst.errors import CheckpointError, FlowerError
from feddst.runtime.config import RunConfig, method_named, with_pins
from feddst.runtime.storage import write_atomically
from feddst.runtime.tensorfile import pack_sealed, unpack_sealed

_FEEDBACK = "feedback"
VERSIONS = 3
"""How many rounds' states are kept: a server that was killed may play its last round again, and one that found its last
checkpoint damaged goes back one more."""


@dataclass(frozen=True)
class Memory:
    """`held` is the bitmap of the last mask received, `states` the client's state after each round."""

    held: bytes = b""
    states: dict[int, ClientState] = field(default_factory=dict)

    def before(self, round: int) -> ClientState:
        """What the client kept before this round."""
        return max(((r, state) for r, state in self.states.items() if r < round), default=(0, ClientState()))[1]

    def after(self, round: int, held: bytes, state: ClientState) -> "Memory":
        """The memory after a round; states of later rounds are dropped: the run was resumed before them."""
        earlier = sorted(r for r in self.states if r < round)[-(VERSIONS - 1) :]
        return Memory(held, {**{r: self.states[r] for r in earlier}, **({} if state.empty else {round: state})})


def keeps_state(config: RunConfig) -> bool:
    """Whether clients keep something from one round to the next, beside the mask."""
    config = with_pins(config)
    return config.wire.feedback or method_named(config.method).keeps_state


class Store(Protocol):
    """Where a memory is between two rounds."""

    def load(self, run: str) -> Memory:
        """What is remembered of a run; nothing, if it is new."""
        ...

    def save(self, run: str, memory: Memory) -> None:
        """Replace what is remembered of a run."""
        ...


def store_of(context: Context) -> Store:
    """The store of this context's client."""
    directory = context.node_config.get("state-dir", "")
    return FileStore(Path(str(directory)), partition_of(context)) if directory else ContextStore(context)


def partition_of(context: Context) -> int:
    """Which client a node is."""
    partition = context.node_config.get("partition-id")
    if type(partition) is not int or partition < 0:
        raise FlowerError(f"the node's config must have partition-id, its number from 0; got {partition!r}")
    return partition


@dataclass(frozen=True)
class ContextStore:
    """In Flower's context."""

    context: Context

    def load(self, run: str) -> Memory:
        content = self.context.state.config_records.get(run, ConfigRecord()).get("memory")
        return _unpacked(content) if isinstance(content, bytes) else Memory()

    def save(self, run: str, memory: Memory) -> None:
        self.context.state[run] = ConfigRecord({"memory": _packed(memory)})


@dataclass(frozen=True)
class FileStore:
    """In a file of its own for each run."""

    directory: Path
    client: int

    def load(self, run: str) -> Memory:
        path = self._path(run)
        try:
            return _unpacked(path.read_bytes()) if path.is_file() else Memory()
        except CheckpointError as error:
            raise CheckpointError(f"{path} is damaged ({error}); without it the client begins anew") from None

    def save(self, run: str, memory: Memory) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._path(run), _packed(memory))

    def _path(self, run: str) -> Path:
        return self.directory / f"{run}-client{self.client}.safetensors"


def _packed(memory: Memory) -> bytes:
    tensors = {"held": torch.frombuffer(bytearray(memory.held), dtype=torch.uint8)} if memory.held else {}
    for round, state in memory.states.items():
        tensors |= {f"{round}/{name}": value for name, value in state.tensors.items()}
        tensors |= {f"{round} {_FEEDBACK}/{name}": value for name, value in state.feedback.items()}
    return pack_sealed(tensors, json.dumps({"rounds": list(memory.states)}))


def _unpacked(content: bytes) -> Memory:
    tensors, about, _ = unpack_sealed(content)
    try:
        rounds = json.loads(about)["rounds"]
        states: dict[int, tuple[dict[str, torch.Tensor], ...]] = {int(round): ({}, {}) for round in rounds}
        held = tensors.pop("held", torch.zeros(0, dtype=torch.uint8)).numpy().tobytes()
        for key, value in tensors.items():
            group, _, name = key.partition("/")
            round, _, kind = group.partition(" ")
            states[int(round)][kind == _FEEDBACK][name] = value
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"it is not a client's memory: {error}") from None
    return Memory(held, {round: ClientState(*kept) for round, kept in states.items()})
