"""What engines' results are waited for with: each in its place, and a failure as an error."""

from collections.abc import Sequence

import pytest

from feddst.core import ClientPlan, LocalTraining, SparseSum
from feddst.engines import Engine, EvalTask, Evaluation, Sink, results_of
from feddst.engines.base import Results
from feddst.errors import DivergenceError, TrainingError
from feddst.wire import ClientResult, ClientTask, Message


class Answering(Engine):
    """Hands over what was prepared for each task, the last first."""

    def __init__(self, *prepared: ClientResult) -> None:
        self._prepared = prepared

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        for index in reversed(range(len(tasks))):
            assert sink.result(index, self._prepared[index]) == (not self._prepared[index].failure)

    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        return []


TASKS = [ClientTask(client, 0, ClientPlan(LocalTraining()), Message(b"")) for client in range(2)]
GOOD = ClientResult(b"payload", loss=0.5)


def test_results_come_in_the_order_of_tasks() -> None:
    other = ClientResult(b"other", loss=0.25)
    assert results_of(Answering(GOOD, other), TASKS) == [GOOD, other]
    assert results_of(Answering(), []) == []


@pytest.mark.parametrize(("diverged", "kind"), [(True, DivergenceError), (False, TrainingError)])
def test_a_failure_is_an_error_of_its_kind(diverged: bool, kind: type[TrainingError]) -> None:
    engine = Answering(GOOD, ClientResult.failed("it fell over", diverged=diverged))
    with pytest.raises(TrainingError, match="it fell over") as caught:
        results_of(engine, TASKS)
    assert caught.type is kind


def test_results_take_neither_sums_nor_failures() -> None:
    results = Results()
    with pytest.raises(TypeError, match="results alone"):
        results.empty_sum(0)
    with pytest.raises(TypeError, match="results alone"):
        results.partial(0, SparseSum({}))
    with pytest.raises(TrainingError, match="why"):
        results.failed(0, TrainingError("why"))
