"""Checks that sizes and sums made on a device are those of updates written, sent and read."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from feddst.core import ClientState, SparseSum, Stack, Update, packed, positions_of
from feddst.engines.stacked.share import Share
from feddst.errors import AuditError
from feddst.wire import ClientResult, Reference, decode_update, encode_update, mask_bytes
from feddst.wire.feedback import Remainder, remainder_of


def audit(share: Share, stacks: Sequence[Stack], results: Sequence[ClientResult]) -> list[ClientResult]:
    """Write and read every update. Raises `AuditError` unless sizes, sums and kept remainders match.

    Returns the results with the bytes that were written, which differ where values are deflated.
    """
    reference, wire = share.sent.on_cpu(), share.wire
    sums = SparseSum(reference.broadcast.masks)
    written: list[ClientResult] = []
    for row, task, result in zip(share.rows, share.tasks, results, strict=True):
        task = task.read_as(reference)
        sent = _update(share, row, result)
        payload = encode_update(sent, task)
        sizes = len(payload), mask_bytes(payload)
        counted = result.size if wire.packing == "plain" else len(payload), result.mask_bytes
        if sizes != counted:
            raise AuditError(f"an update of client {task.client} was counted as {counted} bytes and has {sizes}")
        update = decode_update(payload, task)
        if wire.feedback:
            _check_kept(remainder_of(reference, task.plan, sent.masks), sent, update, result.state)
        sums.add(_corrected(share, update, reference))
        written.append(replace(result, size=len(payload)))
    _compare(share, stacks, sums)
    return written


def _check_kept(remainder: Remainder, sent: Update, arrived: Update, state: ClientState) -> None:
    wanted, found = remainder.left_out(sent, arrived), remainder.read(state)
    if len(wanted) and (found is None or not torch.equal(wanted, found.cpu())):
        raise AuditError(f"client {sent.client} keeps something else than what was left out of its update")


def _update(share: Share, row: int, result: ClientResult) -> Update:
    """One member's update as a client makes it."""
    stack, task, flat = share.trained.stack, share.trained.tasks[row], share.flat
    masks = share.masks(row)
    values = _named(share, stack.theta[row])
    sent = [field.name for field in share.layout.params]
    return Update(
        client=task.client,
        round=task.sent.broadcast.round,
        weight=result.weight,
        params=packed({name: values[name] for name in sent}, positions_of(masks)),
        buffers={field.name: stack.buffers[field.name][row].cpu() for field in share.layout.buffers},
        masks=masks if share.trained.changed[row] else None,
        extra={
            kind: {name: _named(share, rows[row])[name] for name in flat.shapes if name in task.sent.broadcast.params}
            for kind, rows in share.trained.reports.items()
        },
    )


def _named(share: Share, row: Tensor) -> dict[str, Tensor]:
    return {name: value[0] for name, value in share.flat.views(row.cpu()[None]).items()}


def _corrected(share: Share, update: Update, reference: Reference) -> Update:
    if share.encoder.correction is None:
        return update
    masks = reference.broadcast.masks if update.masks is None else update.masks
    added = packed({name: value.cpu() for name, value in share.encoder.correction.items()}, positions_of(masks))
    return replace(update, params={name: value + added[name] for name, value in update.params.items()})


def _compare(share: Share, stacks: Sequence[Stack], sums: SparseSum) -> None:
    mine = SparseSum(share.sent.broadcast.masks)
    for stack in stacks:
        mine.add_stack(stack, updates=0)
    for group in dict.fromkeys(key[0] for stack in stacks for key in stack.places):
        wanted, found = sums.mean(group), mine.mean(group)
        for name, value in wanted.items():
            if not torch.equal(value, found[name].cpu()):
                raise AuditError(f"{name} of {group} was added up otherwise than it was sent")
