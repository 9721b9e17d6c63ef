"""A round that has ended, as a row."""

import time

from feddst.core.metric import Metric, plain
from feddst.core.model import Densities
from feddst.runtime.costs import Forward, Ledger
from feddst.runtime.evaluation import Scores
from feddst.runtime.metrics import Row
from feddst.runtime.rounds import Round


def row_of(
    ended: Round, scores: Scores, metric: Metric, ledger: Ledger, *, densities: Densities, forward: Forward, spare: int
) -> Row:
    """The row of a finished round; `spare` clients were asked beyond those that were needed."""
    return Row(
        round=ended.number,
        score=scores.mean,
        score_worst=scores.worst,
        score_global=scores.overall,
        score_personal=scores.personal,
        loss=scores.loss,
        train_loss=ended.mean_loss(),
        density=densities.prunable,
        entered=sum(entered for entered, _ in ended.moved.values()),
        left=sum(left for _, left in ended.moved.values()),
        clients=ended.total.updates if ended.used else 0,
        refused=len(ended.refusals),
        upload_bytes=ledger.up.total,
        upload_mask_bytes=ledger.up.masks,
        download_bytes=ledger.down.total,
        download_mask_bytes=ledger.down.masks,
        upload_bits=ledger.upload_bits,
        download_bits=ledger.download_bits,
        flops_dense=ledger.flops_dense,
        flops_sparse=ledger.flops_sparse,
        seconds=time.perf_counter() - ended.began,
        missing=len(ended.missing()) if ended.total.updates < len(ended.tasks) - spare else 0,
        late=ended.late,
        upload_header_bytes=ledger.up.headers,
        download_header_bytes=ledger.down.headers,
        density_all=densities.all,
        forward_flops_dense=forward.dense,
        forward_flops_sparse=forward.sparse,
        metric=plain(metric),
        others=scores.others,
    )
