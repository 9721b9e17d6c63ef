"""Members of all cohorts whose updates have the same shape, so that they are processed at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from feddst.engines.stacked.columns import Columns
from feddst.engines.stacked.model_stack import ModelStack
from feddst.engines.stacked.share import Group, Share
from feddst.engines.stacked.trainer import Trained
from feddst.wire import ClientTask, Layout
from feddst.wire.feedback import Remainder

MOST = 2**26
"""The most values in a bundle of several groups: memory is limited."""


@dataclass(frozen=True)
class Bundle:
    """R members that send equally many values of each tensor.

    rows: int64 [R, 1], their models' rows on the stack; at: int64 [R, n], or [1, n] for all of them, the columns of the
    weights that they send. `remainders` say how they keep what does not arrive.
    """

    trained: Trained
    columns: Columns
    layout: Layout
    members: Sequence[int]
    remainders: Sequence[Remainder]
    rows: Tensor
    at: Tensor

    @property
    def stack(self) -> ModelStack:
        """Their stack."""
        return self.trained.stack

    @cached_property
    def tasks(self) -> list[ClientTask]:
        """Their tasks."""
        return [self.trained.tasks[row] for row in self.members]

    @property
    def counts(self) -> Sequence[int]:
        """How many values of each parameter they send."""
        return self.remainders[0].counts

    def of(self, values: Tensor) -> Tensor:
        """The values of [M, width] that each member sends, [R, n]."""
        return values[self.rows, self.at]

    def put(self, values: Tensor, into: Tensor) -> None:
        """Write [R, n] to where `of` reads it."""
        into.index_put_((self.rows, self.at), values)

    def received(self) -> Tensor:
        """The broadcast's values of what each sends, [R, n]."""
        if not self.tasks[0].plan.own_layers:
            return self.of(self.stack.received)
        sent = self.stack.received.new_zeros(len(self.members), self.columns.flat.width)
        for row, task in zip(sent, self.tasks, strict=True):
            self.columns.flat.fill(row, task.sent.broadcast.params)
        return sent.gather(1, self.at.expand(len(sent), -1))

    def some(self, places: Sequence[int]) -> "Bundle":
        """The members at these places."""
        if len(places) == len(self.members):
            return self
        index = torch.tensor(places, device=self.rows.device)
        return Bundle(
            self.trained,
            self.columns,
            self.layout,
            [self.members[place] for place in places],
            [self.remainders[place] for place in places],
            self.rows[index],
            self.at if len(self.at) == 1 else self.at[index],
        )


def bundled(shares: Sequence[Share]) -> list[Bundle]:
    """All members of these shares of one stack."""
    alike: dict[object, list[tuple[Share, Group]]] = {}
    for share in shares:
        for group in share.groups:
            alike.setdefault((share.layout, *group.counts), []).append((share, group))
    bundles: list[Bundle] = []
    for members in alike.values():
        values = max(len(members[0][1].columns), 1) * max(len(group.places) for _, group in members)
        together = max(MOST // values, 1)
        bundles += [_bundle(members[start : start + together]) for start in range(0, len(members), together)]
    return bundles


def _bundle(groups: Sequence[tuple[Share, Group]]) -> Bundle:
    share = groups[0][0]
    members = [(share.rows[place], number) for number, (share, group) in enumerate(groups) for place in group.places]
    rows, numbers = torch.tensor(members, device=share.index.device).t()
    columns = [group.columns for _, group in groups]
    same = all(one is columns[0] for one in columns)
    return Bundle(
        share.trained,
        share.columns,
        share.layout,
        [row for row, _ in members],
        [groups[number][1].remainder for _, number in members],
        rows[:, None],
        columns[0][None] if same else torch.stack(columns)[numbers],
    )
