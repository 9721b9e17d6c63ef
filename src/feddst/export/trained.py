"""A run's trained model, from its last checkpoint, and what is known of its training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from feddst.core import Masks, Tensors, count_kept
from feddst.core.metric import Metric
from feddst.errors import CheckpointError, DamageError, OptionError
from feddst.methods import Method
from feddst.models import persistent_buffers
from feddst.runtime import Result, Row, RunConfig
from feddst.runtime.config import make_method, method_named
from feddst.runtime.ema import result_of
from feddst.runtime.metrics import ACCURACY, is_known
from feddst.runtime.storage import Checkpoint, RunDirectory, read_checkpoint


@dataclass(frozen=True)
class Trained:
    """A model and its record. `masks` name the sparse parameters; what they leave out is zero.

    `client` is the number of the client whose own model this is, None for the server's. `identity` is the digest of
    the run's model and data, empty where nothing was stored. `note` is what a reader must know of the method's result.
    """

    config: RunConfig
    params: Tensors
    buffers: Tensors
    masks: Masks
    round: int
    rows: Sequence[Row]
    finished: bool
    identity: str = ""
    client: int | None = None
    note: str = ""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by their names in a state dict."""
        return {**self.params, **self.buffers}

    @property
    def dense_bytes(self) -> int:
        """What all values take, zeros included."""
        return sum(value.nbytes for value in self.tensors.values())

    @property
    def sparsity(self) -> float:
        """The share of the weights that the masks leave out, among those of layers that have one; 0 without masks."""
        size = sum(mask.numel() for mask in self.masks.values())
        return 1 - sum(map(count_kept, self.masks.values())) / size if size else 0.0

    @property
    def evaluated(self) -> Row | None:
        """The last round up to this model that was evaluated."""
        return next((row for row in reversed(self.rows) if row.score is not None), None)

    @property
    def metric(self) -> Metric:
        """What the run's models were judged by."""
        return self.rows[-1].metric if self.rows else ACCURACY


def trained_in(path: Path, client: int | None = None, *, say: bool = True) -> Trained:
    """What the run in a directory has trained, at its last checkpoint; `say` is as for `stored_config`."""
    directory = RunDirectory(path)
    config = directory.stored_config(say=say)
    identity = _identity(directory.checkpoint)
    saved = directory.load(identity)
    assert saved is not None
    state = saved.state
    whole = result_of(state)
    params, masks = (whole.params, whole.masks) if client is None else _own(config, saved, client)
    return Trained(
        config=config,
        params=params,
        buffers=whole.buffers if client is None else state.buffers,
        masks=masks,
        round=state.round - 1,
        rows=directory.rows(state.round - 1),
        finished=directory.finished() is not None,
        identity=identity,
        client=client,
        note=_note(config, saved, client),
    )


def trained_by(result: Result) -> Trained:
    """What a run that was kept in memory has trained."""
    module = result.model
    personal = _personal(result.config)
    return Trained(
        config=result.config,
        params={name: value.detach().cpu() for name, value in module.named_parameters()},
        buffers={name: value.cpu() for name, value in persistent_buffers(module)},
        masks={name: mask.cpu() for name, mask in result.masks.items()},
        round=result.rows[-1].round if result.rows else 0,
        rows=result.rows,
        finished=result.finished,
        note=f"{_one_each(result.config)} This is the server's." if personal else "",
    )


def _identity(checkpoint: Path) -> str:
    """The digest of model and data that a checkpoint was written with."""
    if not checkpoint.is_file():
        raise CheckpointError(f"{checkpoint.parent} has no model yet: {checkpoint.name} is missing")
    try:
        return str(read_checkpoint(checkpoint)[0]["identity"])
    except KeyError as error:
        raise DamageError(f"{checkpoint} is damaged: {error}") from None


def _own(config: RunConfig, saved: Checkpoint, client: int) -> tuple[Tensors, Masks]:
    """The parameters of a client's own model, and masks where the method prunes each client's separately."""
    if not _personal(config):
        raise OptionError(f"client must be left out: {config.method} makes one model for all clients, got {client}")
    if client not in saved.clients:
        known = ", ".join(map(str, sorted(saved.clients))) or "none"
        raise OptionError(f"client must be one that has trained ({known}), got {client}")
    params = make_method(config).personal(saved.state, saved.clients[client])
    assert params is not None
    return params, {name: params[name] != 0 for name in saved.state.budgets}


def _note(config: RunConfig, saved: Checkpoint, client: int | None) -> str:
    """A note on methods that do not end with one model."""
    if not _personal(config):
        return ""
    each = _one_each(config)
    if client is not None:
        return f"{each} This is the one of client {client}."
    untrained = sorted(make_method(config).plan(saved.state, 0).keep)
    rest = (
        f" Its {', '.join(untrained)} are as they were drawn: clients keep theirs to themselves." if untrained else ""
    )
    return f"{each} This is the server's, which no client uses as it is; `--client N` exports a client's.{rest}"


def _personal(config: RunConfig) -> bool:
    return method_named(config.method).personal is not Method.personal


def _one_each(config: RunConfig) -> str:
    return f"{config.method} ends with one model a client."


def scores_of(row: Row | None) -> Mapping[str, float]:
    """The known scores of an evaluation, by kind."""
    if row is None:
        return {}
    found = {
        "mean_client": row.score,
        "worst_tenth": row.score_worst,
        "all_images" if row.metric == ACCURACY else "all_examples": row.score_global,
        "own_models": row.score_personal,
    }
    return {name: value for name, value in found.items() if is_known(value)}
