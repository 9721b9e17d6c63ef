"""Which models are evaluated after a round, and their scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from feddst.core import ClientState, Metric, ServerState, generator
from feddst.data import Federation, RemoteFederation
from feddst.engines import EvalTask, Evaluation
from feddst.errors import OptionError
from feddst.methods import Method
from feddst.options import one_of
from feddst.runtime.ema import result_of
from feddst.runtime.metrics import NAME, SCORES, TAKEN, worst_tenth


@dataclass(frozen=True)
class Scores:
    """A round's scores, as `Row` has them, and `each` client's [clients]; all None without an evaluation."""

    mean: float | None = None
    worst: float | None = None
    overall: float | None = None
    personal: float | None = None
    loss: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    each: NDArray[np.float64] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Evaluator:
    """Says which models are evaluated: the global one, and that of each client that has its own.

    They are judged by `metrics`, the run's own first.
    """

    method: Method
    federation: Federation | RemoteFederation
    seed: int
    personal_images: int
    metrics: Sequence[Metric]

    @property
    def metric(self) -> Metric:
        """The run's own metric."""
        return self.metrics[0]

    def tasks(self, state: ServerState, clients: Mapping[int, ClientState]) -> list[EvalTask]:
        """The global model's evaluation, then those of clients by rising number; none without test examples."""
        if not self.federation.client_tests:
            return []
        own = [(c, self.method.personal(state, kept)) for c, kept in sorted(clients.items())]
        whole = result_of(state)
        return [
            EvalTask(whole.params, whole.buffers),
            *(EvalTask(model, state.buffers, self._images(c)) for c, model in own if model is not None),
        ]

    def scores(self, results: Sequence[Evaluation], clients: Mapping[int, ClientState]) -> Scores:
        """The scores from the results of `tasks`."""
        if not results:
            return Scores()
        first, *others = results
        tests = self.federation.client_tests
        each = client_scores(first, self.metric, tests)
        personal = None
        if others:
            own = each.copy()
            own[sorted(clients)] = [result.of(self.metric) for result in others]
            personal = mean_score(own)
        found = Scores(
            mean_score(each), worst_tenth(each, self.metric), first.of(self.metric), personal, first.loss, each=each
        )
        return replace(found, others=self._others(first))

    def _others(self, evaluation: Evaluation) -> dict[str, float]:
        """The figures of the other metrics."""
        found: dict[str, float] = {}
        for metric in self.metrics[1:]:
            each = client_scores(evaluation, metric, self.federation.client_tests)
            found[metric.name] = mean_score(each)
            found[f"{metric.name}_worst"] = worst_tenth(each, metric)
            found[f"{metric.name}_global"] = evaluation.of(metric)
        return found

    def _images(self, client: int) -> torch.Tensor:
        """Some of a client's test examples, the same in every round."""
        mine = self.federation.client_tests[client]
        draws = generator(self.seed, "personal test", client=client)
        return torch.from_numpy(np.sort(draws.permutation(mine)[: self.personal_images]))


def client_scores(evaluation: Evaluation, metric: Metric, tests: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Each client's score on its own test set, [clients]; NaN where the metric has no value."""
    known: dict[int, float] = {}  # clients may share a test set
    for index in tests:
        if id(index) not in known:
            known[id(index)] = evaluation.of(metric, torch.from_numpy(index))
    return np.array([known[id(index)] for index in tests])


def mean_score(scores: NDArray[np.float64]) -> float:
    """The mean over the clients that have a score; NaN if none has."""
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if len(known) else math.nan


def chosen(metrics: Sequence[Metric], name: str) -> list[Metric]:
    """The metrics with the one of this name first; in their own order if it is empty."""
    for metric in metrics:
        if metric.name in TAKEN or not NAME.fullmatch(metric.name):
            raise OptionError(
                f"a metric's name must begin with a letter, have letters, digits and _ . - in it, and be no column of "
                f"every run, got {metric.name!r}"
            )
    figures = {metric.name + kind for metric in metrics for kind in SCORES if kind}
    if taken := sorted(figures & {metric.name for metric in metrics}):
        raise OptionError(f"a metric must not be called {taken[0]!r}, as a figure of another metric is")
    if not name:
        return list(metrics)
    first = [metric for metric in metrics if metric.name == name]
    if not first:
        raise OptionError(
            f"metric must be {one_of([metric.name for metric in metrics])} for this objective, got {name!r}"
        )
    return first + [metric for metric in metrics if metric.name != name]
