"""What stacked clients send, added up where it was made; its bytes are counted, and now and then written as well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from feddst.clients.task import Failure
from feddst.core import ClientState, Key, Masks, Place, SparseSum, Stack, count_active, packed, positions_of
from feddst.engines.base import Cohort, Receipt, Tally
from feddst.engines.stacked.audit import audit
from feddst.engines.stacked.bundle import bundled
from feddst.engines.stacked.columns import Columns
from feddst.engines.stacked.feedback import Left, add_kept, keeping, left_out
from feddst.engines.stacked.share import Share
from feddst.engines.stacked.slots import Seat
from feddst.engines.stacked.trainer import Trained
from feddst.engines.stacked.transport import carried, correct
from feddst.errors import ExcessError, TrainingError
from feddst.wire import Asked, WireConfig
from feddst.wire.codecs import codec_named
from feddst.wire.masks import encode_masks
from feddst.wire.payload import payload_size, refuse_large
from feddst.wire.update import LARGEST_TERM


@dataclass(frozen=True)
class Arrived:
    """Weights and reports of a stage's members as they arrive, [M, width] each, and what is left out, by their rows."""

    theta: Tensor
    reports: Mapping[str, Tensor]
    left: Mapping[int, Left]


class Tallies:
    """Adds up what cohorts send, as groups of their members finish."""

    def __init__(self, cohorts: Sequence[Cohort], columns: Columns) -> None:
        self._cohorts = cohorts
        self._columns = columns
        self._totals = [
            SparseSum(cohort.reference.broadcast.masks, cohort.reference.positions, count_holders=cohort.count_holders)
            for cohort in cohorts
        ]
        self._receipts: list[dict[int, Receipt | Failure]] = [{} for _ in cohorts]
        self._failures: dict[int, TrainingError] = {}

    def take(self, trained: Trained) -> None:
        """Add up what these members send."""
        for row, error in trained.failures.items():
            seat = trained.seats[row]
            self._receipts[seat.cohort][seat.place] = Failure(str(error), diverged=True)
        for shares in self._shares(trained):
            arrived = _arrived(list(shares.values()))
            for number, share in shares.items():
                try:
                    self._take(number, share, arrived)
                except TrainingError as error:
                    self._failures[number] = error

    def _shares(self, trained: Trained) -> list[dict[int, Share]]:
        """The members of each cohort that can go on, by its number; those with the same wire together."""
        rows: dict[int, list[int]] = {}
        for row, seat in enumerate(trained.seats):
            if seat.cohort not in self._failures and row not in trained.failures:
                rows.setdefault(seat.cohort, []).append(row)
        everybody = [row for mine in rows.values() for row in mine]
        index = torch.tensor(everybody, dtype=torch.int64, device=self._columns.device)
        parts = index.split_with_sizes([len(mine) for mine in rows.values()])
        shares: dict[WireConfig, dict[int, Share]] = {}
        for (number, mine), part in zip(rows.items(), parts, strict=True):
            cohort = self._cohorts[number]
            shares.setdefault(cohort.wire, {})[number] = Share(cohort, trained, mine, part, self._columns)
        return list(shares.values())

    def _take(self, number: int, share: Share, arrived: Arrived) -> None:
        stacks = _stacks(share, arrived)
        refused = _refused(share, stacks, arrived)
        self._receipts[number] |= refused
        if refused:
            share = share.without(refused)
            if not share.rows:
                return
            stacks = _stacks(share, arrived)
        for i, stack in enumerate(stacks):
            self._totals[number].add_stack(stack, updates=len(share.rows) if i == 0 else 0)
        receipts = keeping(arrived.left, share.rows, [_receipt(share, row) for row in share.rows])
        if share.cohort.audited:
            receipts = audit(share, stacks, receipts)
        for seat, receipt in zip(share.seats, receipts, strict=True):
            self._receipts[number][seat.place] = receipt

    def result(self) -> list[Tally]:
        """One for each cohort, when all of its members have been taken."""
        return [self._result(number) for number in range(len(self._cohorts))]

    def _result(self, number: int) -> Tally:
        if number in self._failures:
            return Tally(self._totals[number], [], self._failures[number])
        receipts = self._receipts[number]
        return Tally(self._totals[number], [receipts[place] for place in range(len(self._cohorts[number].members))])


def _arrived(shares: Sequence[Share]) -> Arrived:
    """Everything that they send, all with the same wire, and what has not arrived of it, where they keep that."""
    trained, wire = shares[0].trained, shares[0].cohort.wire
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
    """What a share's members send, as the server takes it in: weights, reports, buffers."""
    stage, layout, flat = share.trained.stage, share.layout, share.flat
    weights = [_weight(seat) for seat in share.seats]
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
        values = share.of(stage.buffers[field.name]).reshape(len(share.rows), -1).double()
        key = (field.group, field.name)
        stacks.append(Stack(values, weights, {key: Place(0, torch.Size(field.shape), field.dtype)}))
    return stacks


def _weights_of(share: Share, arrived: Tensor, weights: Sequence[int]) -> Stack:
    """Their weights: what the broadcast's masks keep, where all hold just that, else all columns."""
    theta = share.of(arrived)
    correct(share, theta)
    own = any(share.trained.changed[row] for row in share.rows)
    if not own and not share.seats[0].plan.own_layers and share.cohort.reference.active:
        return Stack(theta[:, share.sent], weights, _kept_places(share))
    places: dict[Key, Place] = {}
    for field in share.layout.params:
        start, masked = share.flat.starts[field.name], field.name in share.sparse
        places[field.group, field.name] = Place(start, torch.Size(field.shape), field.dtype, masked)
    return Stack(theta, weights, places, share.of(share.trained.stage.masks) if own else None)


def _kept_places(share: Share) -> dict[Key, Place]:
    """Where tensors lie in the columns that are sent."""
    places: dict[Key, Place] = {}
    start = 0
    for field in share.layout.params:
        kept = share.cohort.reference.active.get(field.name)
        place = Place(start, torch.Size(field.shape), field.dtype, kept is not None, kept)
        places[field.group, field.name], start = place, place.columns.stop
    return places


def _refused(share: Share, stacks: Sequence[Stack], arrived: Arrived) -> dict[int, Receipt]:
    """Receipts for updates that hold what no server would take, by their senders' places."""
    peaks = zip(*(stack.peaks for stack in stacks), strict=True)
    far = _far(share, arrived)
    refused: dict[int, Receipt] = {}
    for i, (row, seat, each) in enumerate(zip(share.rows, share.seats, peaks, strict=True)):
        limit = LARGEST_TERM / _weight(seat)
        if i in far or not all(peak < limit for peak in each):
            named = {
                f"{name} of {group}": stack.values[i, place.columns]
                for stack in stacks
                for (group, name), place in stack.places.items()
            }
            try:
                refuse_large(named, limit)
                asked = Asked(share.cohort.reference.on_cpu(), seat.plan, seat.client, _weight(seat), share.cohort.wire)
                asked.check_change(*_packed(share, i, arrived.theta))
            except ExcessError as error:
                refused[seat.place] = replace(_receipt(share, row), weight=0, refusal=str(error))
    return refused


def _far(share: Share, arrived: Arrived) -> set[int]:
    """Which of them may hold weights too far from those that were sent, as far as norms tell."""
    times, sent = share.cohort.wire.max_change, share.cohort.reference.norm
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


def _receipt(share: Share, row: int) -> Receipt:
    trained, layout = share.trained, share.layout
    seat, mask_bytes, own = trained.seats[row], 0, None
    masks = share.masks(row) if trained.changed[row] or seat.plan.own_layers else {}
    if trained.changed[row]:
        own = count_active(masks)
        mask_bytes = len(_mask_section(share, masks))
    values = share.value_bytes if own is None else share.bytes_of(own)
    size = payload_size(layout, mask_bytes, values)
    return Receipt(size, mask_bytes, _weight(seat), trained.losses[row], _state(share, row, masks), own)


def _mask_section(share: Share, masks: Masks) -> bytes:
    layout, facts = share.layout, share.cohort.reference.facts.on_cpu
    if not any(field.name in masks for field in layout.params):
        return b""
    return encode_masks(masks, layout, share.cohort.wire.mask, facts.masks, facts.positions)[1]


def _state(share: Share, row: int, masks: Masks) -> ClientState:
    """What a client keeps."""
    seat, stage = share.trained.seats[row], share.trained.stage
    if not seat.plan.keep and not seat.plan.own_layers:
        return seat.state
    own = {name: share.flat.view(stage.theta[row : row + 1], name)[0].cpu().clone() for name in sorted(seat.plan.keep)}
    for step in seat.plan.steps:
        own |= step.keeps(masks)
    return replace(seat.state, tensors={**seat.state.tensors, **own})


def _weight(seat: Seat) -> int:
    return seat.plan.local.weight(len(seat.images))
