"""Which models are evaluated after a round, and their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from feddst.core import ClientState, ServerState, generator
from feddst.data import Federation, RemoteFederation
from feddst.engines import EvalTask, Evaluation
from feddst.methods import Method
from feddst.runtime.ema import result_of
from feddst.runtime.metrics import client_accuracies, worst_tenth


@dataclass(frozen=True)
class Scores:
    """A round's accuracies, as `Row` has them, and `each` client's [clients]; all None without an evaluation."""

    accuracy: float | None = None
    worst: float | None = None
    overall: float | None = None
    personal: float | None = None
    loss: float | None = None
    each: NDArray[np.float64] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Evaluator:
    """Says which models are evaluated: the global one, and that of each client that has its own."""

    method: Method
    federation: Federation | RemoteFederation
    seed: int
    personal_images: int

    def tasks(self, state: ServerState, clients: Mapping[int, ClientState]) -> list[EvalTask]:
        """The global model's evaluation, then those of clients by rising number; none without test images."""
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
        correct = first.correct.numpy()
        each = client_accuracies(correct, self.federation.client_tests)
        accuracy, worst, overall = float(each.mean()), worst_tenth(each), float(correct.mean())
        personal = None
        if others:
            own = each.copy()
            own[sorted(clients)] = [float(result.correct.float().mean()) for result in others]
            personal = float(own.mean())
        return Scores(accuracy, worst, overall, personal, first.loss, each)

    def _images(self, client: int) -> torch.Tensor:
        """Some of a client's test images, the same in every round."""
        mine = self.federation.client_tests[client]
        draws = generator(self.seed, "personal test", client=client)
        return torch.from_numpy(np.sort(draws.permutation(mine)[: self.personal_images]))
