"""Error feedback of stacked clients (`wire.feedback`): what updates leave out is kept and added to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from feddst.engines.stacked.bundle import Bundle
from feddst.wire import ClientResult
from feddst.wire.feedback import Remainder

Left = tuple[Remainder, Tensor]
"""How a client keeps what its update leaves out, and those values: a row that stays on the device."""


def add_kept(bundle: Bundle) -> None:
    """Add what members have kept to their weights, where they held a weight then and hold it now."""
    if not bundle.layout.params:
        return
    found = enumerate(one.kept(task.state) for one, task in zip(bundle.remainders, bundle.tasks, strict=True))
    kept = {place: one for place, one in found if one is not None}
    if not kept:
        return
    some, theta = bundle.some(list(kept)), bundle.stack.theta
    rows = [row.to(theta.device) for row, _ in kept.values()]
    columns = [bundle.columns.under(bitmap, bundle.remainders[place].layout) for place, (_, bitmap) in kept.items()]
    lengths = torch.tensor([len(row) for row in rows], device=theta.device)
    whose = torch.arange(len(rows), device=theta.device).repeat_interleave(lengths, output_size=sum(map(len, rows)))
    whole = torch.zeros(len(rows), theta.shape[1], dtype=rows[0].dtype, device=theta.device)
    whole.index_put_((whose, torch.cat(columns)), torch.cat(rows))
    some.put(some.of(theta).add_(whole.gather(1, some.at.expand(len(rows), -1))), theta)


def left_out(bundle: Bundle, arrived: Tensor) -> dict[int, Left]:
    """What did not arrive of each member's weights, by its row; arrived: [M, width]."""
    if not bundle.layout.params:
        return {}
    lost = bundle.of(bundle.stack.theta).sub_(bundle.of(arrived)).to(torch.bfloat16)
    # Each in its own memory: clients return in different rounds.
    own = [lost.new_empty(lost.shape[1]) for _ in bundle.members]
    torch._foreach_copy_(own, lost.unbind())
    return dict(zip(bundle.members, zip(bundle.remainders, own, strict=True), strict=True))


def keeping(left: Mapping[int, Left], rows: Sequence[int], results: Sequence[ClientResult]) -> list[ClientResult]:
    """The results of the clients in these rows, whose states now hold what their updates left out, if anything."""
    if not left:
        return list(results)
    states = [left[row][0].written(result.state, left[row][1]) for row, result in zip(rows, results, strict=True)]
    return [replace(result, state=state) for result, state in zip(results, states, strict=True)]
