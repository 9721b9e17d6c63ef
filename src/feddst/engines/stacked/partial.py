"""Stacked clients' updates, summed on the device; their bytes are counted, and written only for an audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from feddst.clients.steps import LotteryPruning
from feddst.clients.steps.lottery import kept_masks
from feddst.core import ClientState, Key, Masks, Place, SparseSum, Stack, count_active, packed, positions_of
from feddst.engines.base import Sink
from feddst.engines.stacked.audit import audit
from feddst.engines.stacked.bundle import bundled
from feddst.engines.stacked.columns import Columns
from feddst.engines.stacked.feedback import Left, add_kept, keeping, left_out
from feddst.engines.stacked.share import Share
from feddst.engines.stacked.trainer import Trained
from feddst.engines.stacked.transport import carried, correct
from feddst.errors import ExcessError, TrainingError
from feddst.wire import ClientResult, Reference, WireConfig
from feddst.wire.codecs import codec_named
from feddst.wire.masks import encode_masks
from feddst.wire.payload import payload_size, refuse_large
from feddst.wire.update import LARGEST_TERM, check_change


@dataclass(frozen=True)
class Arrived:
    """A stack's weights and reports as they arrive, [M, width] each, and what is left out, by row."""

    theta: Tensor
    reports: Mapping[str, Tensor]
    left: Mapping[int, Left]


class PartialSums:
    """Adds up clients' updates as groups of them finish: one sum for all that were sent the same."""

    def __init__(self, sink: Sink, columns: Columns) -> None:
        self._sink = sink
        self._columns = columns
        self._sums: dict[Reference, tuple[int, SparseSum]] = {}
        self._failed: set[Reference] = set()

    def take(self, trained: Trained) -> None:
        """Add up these clients' updates, and hand over each one's result."""
        for row, error in trained.failures.items():
            self._sink.result(trained.indices[row], ClientResult.failed(str(error), diverged=True))
        for shares in self._shares(trained):
            arrived = _arrived(shares)
            for share in shares:
                try:
                    self._take(share, arrived)
                except TrainingError as error:
                    self._failed.add(share.sent)
                    self._sink.failed(trained.indices[share.rows[0]], error)

    def hand_in(self) -> None:
        """Hand in the sums, when all clients have been taken."""
        for sent, (index, total) in self._sums.items():
            if sent not in self._failed:
                self._sink.partial(index, total)

    def _shares(self, trained: Trained) -> list[list[Share]]:
        """The unfailed clients by what they were sent; shares with the same wire together."""
        rows: dict[Reference, list[int]] = {}
        for row, task in enumerate(trained.tasks):
            if task.sent not in self._failed and row not in trained.failures:
                rows.setdefault(task.sent, []).append(row)
        everybody = [row for mine in rows.values() for row in mine]
        index = torch.tensor(everybody, dtype=torch.int64, device=self._columns.device)
        parts = index.split_with_sizes([len(mine) for mine in rows.values()])
        shares: dict[WireConfig, list[Share]] = {}
        for mine, part in zip(rows.values(), parts, strict=True):
            share = Share(trained, mine, part, self._columns)
            shares.setdefault(share.wire, []).append(share)
        return list(shares.values())

    def _take(self, share: Share, arrived: Arrived) -> None:
        stacks = _stacks(share, arrived)
        refused = _refused(share, stacks, arrived)
        for row, result in refused.items():
            self._sink.result(share.trained.indices[row], result)
        if refused:
            share = share.without(refused)
            if not share.rows:
                return
            stacks = _stacks(share, arrived)
        index = share.trained.indices[share.rows[0]]
        if share.sent not in self._sums:
            empty = self._sink.empty_sum(index)
            assert isinstance(empty, SparseSum)  # `make_engine` gives other aggregators to other engines
            self._sums[share.sent] = index, empty
        _, total = self._sums[share.sent]
        for i, stack in enumerate(stacks):
            total.add_stack(stack, updates=len(share.rows) if i == 0 else 0)
        results = keeping(arrived.left, share.rows, [_receipt(share, row) for row in share.rows])
        if share.encoder.audited:
            results = audit(share, stacks, results)
        for row, result in zip(share.rows, results, strict=True):
            self._sink.result(share.trained.indices[row], result)


def _arrived(shares: Sequence[Share]) -> Arrived:
    """Everything that shares with the same wire send, and what did not arrive of it, if they keep that."""
    trained, wire = shares[0].trained, shares[0].wire
    codec = codec_named(wire.values, "wire.values")
    bundles = [] if codec.elementwise and not wire.feedback else bundled(shares)
    if wire.feedback:
        for bundle in bundles:
            add_kept(bundle)
    theta, reports = carried(trained, bundles, codec)
    left: dict[int, Left] = {}
    if wire.feedback:
        for bundle in bundles:
            left |= left_out(bundle, theta)
    return Arrived(theta, reports, left)


def _stacks(share: Share, arrived: Arrived) -> list[Stack]:
    """What a share's members send, as the server adds it up: weights, reports, buffers."""
    stack, layout, flat = share.trained.stack, share.layout, share.flat
    weights = [task.largest_weight for task in share.tasks]
    stacks = [_weights_of(share, arrived.theta, weights)] if layout.params else []
    for kind, values in arrived.reports.items():
        places: dict[Key, Place] = {
            (kind, field.name): Place(flat.starts[field.name], torch.Size(field.shape), field.dtype)
            for field in layout.coded
            if field.group == kind
        }
        if places:
            stacks.append(Stack(share.of(values), weights, places))
    for field in layout.buffers:
        values = share.of(stack.buffers[field.name]).reshape(len(share.rows), -1).double()
        key = (field.group, field.name)
        stacks.append(Stack(values, weights, {key: Place(0, torch.Size(field.shape), field.dtype)}))
    return stacks


def _weights_of(share: Share, arrived: Tensor, weights: Sequence[int]) -> Stack:
    """Their weights: those under the broadcast's masks if all have these masks, else all columns."""
    theta = share.of(arrived)
    correct(share, theta)
    own = any(share.trained.changed[row] for row in share.rows)
    if not own and not share.tasks[0].plan.own_layers and share.sent.active:
        return Stack(theta[:, share.sent_columns], weights, _kept_places(share))
    places: dict[Key, Place] = {}
    for field in share.layout.params:
        start, masked = share.flat.starts[field.name], field.name in share.sparse
        places[field.group, field.name] = Place(start, torch.Size(field.shape), field.dtype, masked)
    return Stack(theta, weights, places, share.of(share.trained.stack.masks) if own else None)


def _kept_places(share: Share) -> dict[Key, Place]:
    """Where tensors lie in the columns that are sent."""
    places: dict[Key, Place] = {}
    start = 0
    for field in share.layout.params:
        kept = share.sent.active.get(field.name)
        place = Place(start, torch.Size(field.shape), field.dtype, kept is not None, kept)
        places[field.group, field.name], start = place, place.columns.stop
    return places


def _refused(share: Share, stacks: Sequence[Stack], arrived: Arrived) -> dict[int, ClientResult]:
    """The results of updates that a server would refuse, by their clients' rows."""
    peaks = zip(*(stack.peaks for stack in stacks), strict=True)
    far = _far(share, arrived)
    refused: dict[int, ClientResult] = {}
    for i, (row, task, each) in enumerate(zip(share.rows, share.tasks, peaks, strict=True)):
        limit = LARGEST_TERM / task.largest_weight
        if i in far or not all(peak < limit for peak in each):
            named = {
                f"{name} of {group}": stack.values[i, place.columns]
                for stack in stacks
                for (group, name), place in stack.places.items()
            }
            try:
                refuse_large(named, limit)
                check_change(task.read_as(task.sent.on_cpu()), *_packed(share, i, arrived.theta))
            except ExcessError as error:
                refused[row] = replace(_receipt(share, row), weight=0, failure=str(error), diverged=True)
    return refused


def _far(share: Share, arrived: Arrived) -> set[int]:
    """Which of them may be too far from the weights they were sent, judged by norms."""
    times, sent = share.wire.max_change, share.sent.norm
    if not times or not share.layout.params:
        return set()
    lengths = torch.linalg.vector_norm(share.of(arrived.theta).float(), dim=1).tolist()
    return {i for i, length in enumerate(lengths) if not length + sent <= times * max(sent, 1.0)}


def _packed(share: Share, i: int, theta: Tensor) -> tuple[dict[str, Tensor], Masks | None]:
    """One member's weights as they arrive, packed, and its masks if they are not those it was sent."""
    row = share.rows[i]
    values = {name: value[0] for name, value in share.flat.views(theta[row : row + 1].cpu()).items()}
    masks = share.masks(row)
    found = packed({field.name: values[field.name] for field in share.layout.params}, positions_of(masks))
    return found, masks if share.trained.changed[row] else None


def _receipt(share: Share, row: int) -> ClientResult:
    trained, layout = share.trained, share.layout
    task, mask_bytes, own = trained.tasks[row], 0, None
    masks = share.masks(row) if trained.changed[row] or task.plan.own_layers else {}
    if trained.changed[row]:
        own = count_active(masks)
        mask_bytes = len(_mask_section(share, masks))
    values = share.value_bytes if own is None else share.bytes_of(own)
    size = payload_size(layout, mask_bytes, values)
    return ClientResult(
        state=_state(share, row, masks),
        loss=trained.losses[row],
        size=size,
        mask_bytes=mask_bytes,
        weight=task.largest_weight,
        own=own,
    )


def _mask_section(share: Share, masks: Masks) -> bytes:
    layout, facts = share.layout, share.sent.facts.on_cpu
    if not any(field.name in masks for field in layout.params):
        return b""
    return encode_masks(masks, layout, share.wire.mask, facts.masks, facts.positions)[1]


def _state(share: Share, row: int, masks: Masks) -> ClientState:
    """A client's state."""
    task, stack = share.trained.tasks[row], share.trained.stack
    if row in share.trained.kept:
        return share.trained.kept[row]
    if not task.plan.keep and not task.plan.own_layers:
        return task.state
    own = {name: share.flat.view(stack.theta[row : row + 1], name)[0].cpu().clone() for name in sorted(task.plan.keep)}
    if task.plan.step(LotteryPruning) is not None:
        own |= kept_masks(masks)
    return replace(task.state, tensors={**task.state.tensors, **own})
