"""What stacked clients send, added up where it was made; its bytes are counted, and now and then written as well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from feddst.engines.base import Cohort, Receipt, Tally
from feddst.engines.stacked.audit import audit
from feddst.engines.stacked.carriage import carried, correct
from feddst.engines.stacked.feedback import Left, add_kept, keeping, left_out
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.seats import Seat
from feddst.engines.stacked.training import Trained, masks_of
from feddst.errors import TrainingError, WireError
from feddst.methods.lotteryfl import kept_masks
from feddst.protocol import ClientState, Key, Masks, Place, Positions, SparseSum, Stack, count_active, positions_of
from feddst.wire import Layout
from feddst.wire.codecs import codec_named
from feddst.wire.masks import encode_masks
from feddst.wire.payload import counts_of, payload_size, refuse_large
from feddst.wire.update import LARGEST_TERM


@dataclass(frozen=True)
class Group:
    """Members of a share who hold the same weights: which of them, from first to last, and masks of their own."""

    places: range
    own: Masks | None = None

    def of(self, values: Tensor) -> Tensor:
        """Their rows of a tensor with all members', in the same memory."""
        return values[self.places.start : self.places.stop]


@dataclass(frozen=True)
class Share:
    """The members of one cohort among those who trained together: `rows` of `trained` are theirs."""

    cohort: Cohort
    trained: Trained
    rows: Sequence[int]
    flat: Flat

    @cached_property
    def seats(self) -> list[Seat]:
        """Whose they are."""
        return [self.trained.seats[row] for row in self.rows]

    @cached_property
    def layout(self) -> Layout:
        """What each of them sends."""
        return self.cohort.reference.answer_layout(self.seats[0].work)

    @cached_property
    def value_bytes(self) -> int:
        """How many bytes the values of one who holds the broadcast's masks take."""
        return self.bytes_of(self.cohort.reference.active)

    def bytes_of(self, active: Mapping[str, int]) -> int:
        """How many bytes values take, with so many active weights in masked layers."""
        return codec_named(self.cohort.wire.values, "wire.values").size(counts_of(self.layout, active))

    @cached_property
    def sparse(self) -> set[str]:
        """The names of the tensors of which they may hold only a part."""
        ticket = self.seats[0].work.ticket
        return {*self.cohort.reference.broadcast.masks, *(() if ticket is None else ticket.budgets)}

    def of(self, values: Tensor) -> Tensor:
        """Their rows of a tensor [M, …]."""
        return values[torch.tensor(self.rows, device=values.device)]

    @cached_property
    def groups(self) -> list[Group]:
        """Those who hold the same weights: all of them, or each alone where some have masks of their own."""
        changed = [self.trained.changed[row] for row in self.rows]
        if not any(changed):
            return [Group(range(len(self.rows)))]
        own = [self.masks(row) if other else None for row, other in zip(self.rows, changed, strict=True)]
        return [Group(range(place, place + 1), masks) for place, masks in enumerate(own)]

    def positions(self, group: Group) -> Positions:
        """Where the weights are that a group holds, on the device."""
        if group.own is None:
            return self.cohort.reference.positions
        device = self.trained.stage.theta.device
        return positions_of({name: mask.to(device) for name, mask in group.own.items()})

    def masks(self, row: int) -> dict[str, Tensor]:
        """The masks of one of them, on the CPU."""
        return masks_of(self._held, self.flat, self._places[row], self.trained.seats[row])

    @cached_property
    def _places(self) -> dict[int, int]:
        """Where each row is among theirs."""
        return {row: place for place, row in enumerate(self.rows)}

    @cached_property
    def _held(self) -> Tensor:
        """All their masks, brought to the CPU in one go."""
        return self.of(self.trained.stage.masks).cpu()


class Tallies:
    """Adds up what cohorts send, as groups of their members finish."""

    def __init__(self, cohorts: Sequence[Cohort], flat: Flat) -> None:
        self._cohorts = cohorts
        self._flat = flat
        self._totals = [
            SparseSum(cohort.reference.broadcast.masks, count_holders=cohort.count_holders) for cohort in cohorts
        ]
        self._receipts: list[dict[int, Receipt]] = [{} for _ in cohorts]
        self._failures: dict[int, TrainingError] = {}

    def take(self, trained: Trained) -> None:
        """Add up what these members send."""
        rows: dict[int, list[int]] = {}
        for row, seat in enumerate(trained.seats):
            rows.setdefault(seat.cohort, []).append(row)
        self._failures |= trained.failures
        for number, mine in rows.items():
            if number not in self._failures:
                try:
                    self._take(number, Share(self._cohorts[number], trained, mine, self._flat))
                except TrainingError as error:
                    self._failures[number] = error

    def _take(self, number: int, share: Share) -> None:
        if share.cohort.wire.feedback:
            add_kept(share)
        stacks, left = _sent(share)
        refused = _refused(share, stacks)
        self._receipts[number] |= refused
        if refused:
            share = replace(share, rows=[row for row in share.rows if share.trained.seats[row].place not in refused])
            if not share.rows:
                return
            stacks, left = _sent(share)
        for i, stack in enumerate(stacks):
            self._totals[number].add_stack(stack, updates=len(share.rows) if i == 0 else 0)
        receipts = keeping(left, [_receipt(share, row) for row in share.rows])
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


def _sent(share: Share) -> tuple[list[Stack], list[Left]]:
    """Everything that they send, as it arrives, and what has not arrived of it, where they keep that."""
    theta, reports = carried(share)
    left = left_out(share, theta) if share.cohort.wire.feedback else []
    correct(share, theta)
    return _stacks(share, theta, reports), left


def _stacks(share: Share, theta: Tensor, reports: Mapping[str, Tensor]) -> list[Stack]:
    """Everything that they send: weights, reports, buffers."""
    stage, layout, flat = share.trained.stage, share.layout, share.flat
    weights = [_weight(seat) for seat in share.seats]
    named: dict[Key, Place] = {}
    for field in layout.coded:
        place = Place(flat.starts[field.name], torch.Size(field.shape), field.dtype, field.name in share.sparse)
        named[field.group, field.name] = place if field.group == "params" else _dense(place)
    groups = {"params": theta, **reports}
    own_masks = any(share.trained.changed[row] for row in share.rows)
    stacks = []
    for group, values in groups.items():
        places = {key: place for key, place in named.items() if key[0] == group}
        if places:
            held = share.of(stage.masks) if own_masks and group == "params" else None
            stacks.append(Stack(values, weights, places, held))
    for field in layout.buffers:
        values = share.of(stage.buffers[field.name]).reshape(len(share.rows), -1).double()
        key = (field.group, field.name)
        stacks.append(Stack(values, weights, {key: Place(0, torch.Size(field.shape), field.dtype)}))
    return stacks


def _dense(place: Place) -> Place:
    return Place(place.start, place.shape, place.dtype)


def _refused(share: Share, stacks: Sequence[Stack]) -> dict[int, Receipt]:
    """Receipts for updates that hold what no server would take, by their senders' places."""
    peaks = zip(*(stack.peaks for stack in stacks), strict=True)
    refused: dict[int, Receipt] = {}
    for i, (row, seat, each) in enumerate(zip(share.rows, share.seats, peaks, strict=True)):
        limit = LARGEST_TERM / _weight(seat)
        if not all(peak < limit for peak in each):
            named = {
                f"{name} of {group}": stack.values[i, place.start : place.start + place.shape.numel()]
                for stack in stacks
                for (group, name), place in stack.places.items()
            }
            try:
                refuse_large(named, limit)
            except WireError as error:
                refused[seat.place] = replace(_receipt(share, row), weight=0, refusal=str(error))
    return refused


def _receipt(share: Share, row: int) -> Receipt:
    trained, layout = share.trained, share.layout
    seat, mask_bytes, own = trained.seats[row], 0, None
    masks = share.masks(row) if trained.changed[row] or seat.work.ticket is not None else {}
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
    if not seat.work.keep and seat.work.ticket is None:
        return seat.state
    own = {name: share.flat.view(stage.theta[row : row + 1], name)[0].cpu().clone() for name in seat.work.keep}
    ticket = kept_masks(masks) if seat.work.ticket is not None else {}
    return replace(seat.state, tensors={**seat.state.tensors, **own, **ticket})


def _weight(seat: Seat) -> int:
    return seat.work.local.weight(len(seat.images))
