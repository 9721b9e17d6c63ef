"""The wire's effect on stacked clients' values: rounding, where a codec rounds, without writing bytes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from feddst.core import generator
from feddst.engines.stacked.bundle import Bundle
from feddst.engines.stacked.share import Share
from feddst.engines.stacked.trainer import Trained
from feddst.wire import ValueCodec

Carried = tuple[Tensor, dict[str, Tensor]]
"""The weights and the reports of a stack's members as they arrive, [M, width] each."""


def carried(trained: Trained, bundles: Sequence[Bundle], codec: ValueCodec) -> Carried:
    """The values from these bundles' members as they arrive, by the rows of the stack."""
    theta, reports = trained.stack.theta, trained.reports
    if codec.elementwise:
        arrived, *others = codec.received([theta, *reports.values()], [])
        return arrived, dict(zip(reports, others, strict=True))
    empty = torch.zeros_like(theta), {kind: torch.zeros_like(values) for kind, values in reports.items()}
    for bundle in bundles:
        _round(bundle, codec, *empty)
    return empty


def correct(share: Share, theta: Tensor) -> None:
    """Make arrived weights, [K, width], changes to the server's own where the broadcast was rounded."""
    if share.encoder.correction is not None:
        for name, added in share.encoder.correction.items():
            held = share.flat.view(share.of(share.trained.stack.masks), name) if name in share.sparse else 1
            share.flat.view(theta, name).add_(added * held)


def _round(bundle: Bundle, codec: ValueCodec, theta: Tensor, reports: dict[str, Tensor]) -> None:
    """Write arrived values to the members' rows of `theta` and `reports`, [M, width] each."""
    weights = bundle.of(bundle.stack.theta)
    before = bundle.received() if codec.relative else None
    changes = weights if before is None else weights.sub_(before)
    rows, flat = bundle.rows[:, 0], bundle.columns.flat
    told = [field for field in bundle.layout.coded if field.group != "params"]
    dense = [flat.view(bundle.trained.reports[field.group], field.name).flatten(1)[rows] for field in told]
    draws = [generator(task.seed, "update rounding", *task.draw[1:]) for task in bundle.tasks if codec.random]
    found = codec.received([*changes.split_with_sizes(list(bundle.counts), dim=1), *dense], draws)
    params, others = found[: len(bundle.counts)], found[len(bundle.counts) :]
    if params:
        arrived = torch.cat(params, dim=1)
        bundle.put(arrived if before is None else arrived.add_(before), theta)
    for field, values in zip(told, others, strict=True):
        flat.view(reports[field.group], field.name).flatten(1)[rows] = values
