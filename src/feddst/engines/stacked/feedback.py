"""What the wire leaves out of stacked clients' updates: added to the next ones, and kept, as `wire.feedback` has it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from feddst.engines.base import Receipt
from feddst.wire.feedback import Remainder, remainder_of

if TYPE_CHECKING:
    from feddst.engines.stacked.tally import Group, Share

Left = tuple[Remainder, Tensor]
"""What is left out of one client's update, a row on the device, where it stays, and how it is kept."""


def add_kept(share: "Share") -> None:
    """Add to the members' weights what they keep."""
    theta = share.trained.stage.theta
    for group in _groups(share):
        remainder = _remainder(share, group)
        kept = {share.rows[place]: remainder.read(share.seats[place].state) for place in group.places}
        rows = {row: value.to(theta.device) for row, value in kept.items() if value is not None}
        if rows:
            at = torch.tensor(list(rows), device=theta.device)[:, None], _columns(share, group)[None]
            theta.index_put_(at, theta[at] + torch.stack(list(rows.values())).float())


def left_out(share: "Share", arrived: Tensor) -> list[Left]:
    """What each member sent and has not arrived, of weights [K, width] as they arrive."""
    left: list[Left] = []
    for group in _groups(share):
        remainder, at = _remainder(share, group), _columns(share, group)
        rows = torch.tensor([share.rows[place] for place in group.places], device=arrived.device)
        sent = share.trained.stage.theta[rows[:, None], at[None]]
        lost = sent.sub_(group.of(arrived)[:, at]).to(torch.bfloat16)
        left += [(remainder, row.clone()) for row in lost]
    return left


def keeping(left: Sequence[Left], receipts: Sequence[Receipt]) -> list[Receipt]:
    """Receipts of clients that keep what was left out of their updates, where anything is kept."""
    if not left:
        return list(receipts)
    return [
        replace(receipt, state=remainder.written(receipt.state, row))
        for receipt, (remainder, row) in zip(receipts, left, strict=True)
    ]


def _groups(share: "Share") -> "list[Group]":
    """Groups of members who send parameters at all."""
    return share.groups if share.layout.params else []


def _remainder(share: "Share", group: "Group") -> Remainder:
    return remainder_of(share.cohort.reference, share.seats[0].work, group.own)


def _columns(share: "Share", group: "Group") -> Tensor:
    """Where, in the row of a model, the weights are that a group sends, in the layout's order."""
    positions, flat, device = share.positions(group), share.flat, share.trained.stage.theta.device
    return torch.cat(
        [
            flat.starts[field.name] + positions.get(field.name, torch.arange(field.size, device=device))
            for field in share.layout.params
        ]
    )
