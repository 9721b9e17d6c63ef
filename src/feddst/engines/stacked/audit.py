"""A check that what is counted and added up on a device is what would be written, sent and read."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from feddst.core import ClientState, SparseSum, Stack, Update, generator, packed, positions_of
from feddst.engines.base import Receipt
from feddst.engines.stacked.share import Share
from feddst.errors import AuditError
from feddst.wire import Asked, Reference, decode_update, encode_update, mask_bytes
from feddst.wire.feedback import Remainder, remainder_of


def audit(share: Share, stacks: Sequence[Stack], receipts: Sequence[Receipt]) -> list[Receipt]:
    """Write and read every update. Raises `AuditError` unless sizes and sums are as they were counted and added up.

    So must be what clients keep of what did not arrive.
    Returns the receipts with the bytes that were written, which differ where values are deflated.
    """
    reference, wire = share.cohort.reference.on_cpu(), share.cohort.wire
    sums = SparseSum(reference.broadcast.masks)
    written: list[Receipt] = []
    for row, seat, receipt in zip(share.rows, share.seats, receipts, strict=True):
        draws = generator(seat.seed, "update rounding", *seat.draw[1:])
        sent = _update(share, row, receipt)
        payload = encode_update(sent, reference, seat.plan, wire, draws)
        sizes = len(payload), mask_bytes(payload)
        counted = receipt.bytes if wire.packing == "plain" else len(payload), receipt.mask_bytes
        if sizes != counted:
            raise AuditError(f"an update of client {seat.client} was counted as {counted} bytes and has {sizes}")
        update = decode_update(payload, Asked(reference, seat.plan, seat.client, receipt.weight, wire))
        if wire.feedback:
            _check_kept(remainder_of(reference, seat.plan, sent.masks), sent, update, receipt.state)
        sums.add(_corrected(share, update, reference))
        written.append(replace(receipt, bytes=len(payload)))
    _compare(share, stacks, sums)
    return written


def _check_kept(remainder: Remainder, sent: Update, arrived: Update, state: ClientState) -> None:
    wanted, found = remainder.left_out(sent, arrived), remainder.read(state)
    if len(wanted) and (found is None or not torch.equal(wanted, found.cpu())):
        raise AuditError(f"client {sent.client} keeps something else than what was left out of its update")


def _update(share: Share, row: int, receipt: Receipt) -> Update:
    """One member's update as a client makes it."""
    stage, seat, flat = share.trained.stage, share.trained.seats[row], share.flat
    masks = share.masks(row)
    values = _named(share, stage.theta[row])
    sent = [field.name for field in share.layout.params]
    return Update(
        client=seat.client,
        round=seat.broadcast.round,
        weight=receipt.weight,
        params=packed({name: values[name] for name in sent}, positions_of(masks)),
        buffers={field.name: stage.buffers[field.name][row].cpu() for field in share.layout.buffers},
        masks=masks if share.trained.changed[row] else None,
        extra={
            kind: {name: _named(share, rows[row])[name] for name in flat.shapes if name in seat.broadcast.params}
            for kind, rows in share.trained.reports.items()
        },
    )


def _named(share: Share, row: Tensor) -> dict[str, Tensor]:
    return {name: value[0] for name, value in share.flat.views(row.cpu()[None]).items()}


def _corrected(share: Share, update: Update, reference: Reference) -> Update:
    if share.cohort.correction is None:
        return update
    masks = reference.broadcast.masks if update.masks is None else update.masks
    added = packed({name: value.cpu() for name, value in share.cohort.correction.items()}, positions_of(masks))
    return replace(update, params={name: value + added[name] for name, value in update.params.items()})


def _compare(share: Share, stacks: Sequence[Stack], sums: SparseSum) -> None:
    mine = SparseSum(share.cohort.reference.broadcast.masks)
    for stack in stacks:
        mine.add_stack(stack, updates=0)
    for group in dict.fromkeys(key[0] for stack in stacks for key in stack.places):
        wanted, found = sums.mean(group), mine.mean(group)
        for name, value in wanted.items():
            if not torch.equal(value, found[name].cpu()):
                raise AuditError(f"{name} of {group} was added up otherwise than it was sent")
