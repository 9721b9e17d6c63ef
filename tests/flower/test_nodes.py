"""Which node serves which client: nodes come, go, come back under another number, and say wrong things."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import flwr.serverapp.strategy
import pytest
from flwr.app import ArrayRecord, Context, Message, RecordDict
from torch import Tensor

import feddst
from feddst.data import Federation
from feddst.engines import EngineConfig
from feddst.errors import FlowerError
from feddst.flower import FlowerConfig, InProcessGrid, Strategy, client_app
from feddst.flower.messages import HELLO, TRAIN
from feddst.models import make_module
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.session import Result

Configure = Callable[..., RunConfig]
Play = Callable[..., Any]
Alike = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], bool]
Work = Callable[[Message], Message]

HASTY = FlowerConfig(wait=5, deadline=0.5, failures=100)


class Moving(InProcessGrid):
    """A grid whose nodes can be added and taken away; what was sent to one that is gone stays unanswered."""

    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, courier=self._carry, **others)
        self._last = len(self._contexts)
        self.hellos = 0
        self.at_work: set[int] = set()

    def _carry(self, message: Message, work: Work) -> Message | None:
        node = message.metadata.dst_node_id
        self.hellos += message.metadata.message_type == HELLO
        if message.metadata.message_type == TRAIN:
            self.at_work.add(node)
        return work(message) if node in self._contexts else None

    def add(self, **node_config: Any) -> int:
        """A new node."""
        self._last += 1
        own = {name.replace("_", "-"): value for name, value in node_config.items()}
        self._contexts[self._last] = Context(1, self._last, own, RecordDict(), {})
        return self._last

    def remove(self, node: int) -> None:
        del self._contexts[node]


class After(Silent):
    """Does something after some rounds; keeps rows and weights."""

    def __init__(self, what: Mapping[int, Callable[[], object]]) -> None:
        self._what = what
        self.rows: list[Row] = []
        self.weights: dict[str, Tensor] = {}

    def row(self, run: Run, row: Row) -> None:
        self.rows.append(row)
        self.weights = {**run.state.params, **run.state.buffers}
        self._what.get(row.round, lambda: None)()


@pytest.fixture
def expected(configure: Configure, federation: Federation, network: Any) -> Result:
    return feddst.run(configure(), model=network, data=federation, watcher=Silent())


@pytest.fixture
def start(federation: Federation, network: Any) -> Callable[..., After]:
    def begin(
        grid: InProcessGrid,
        config: RunConfig,
        what: Mapping[int, Callable[[], object]] | None = None,
        flower: FlowerConfig = HASTY,
    ) -> After:
        watcher = After(what or {})
        Strategy(config, model=network, data=federation, watcher=watcher, flower=flower).start(grid)
        return watcher

    return begin


def test_a_node_that_comes_back_under_another_number_serves_again(
    configure: Configure, make_grid: Any, start: Callable[..., After], caplog: pytest.LogCaptureFixture
) -> None:
    grid = make_grid(kind=Moving)
    seen = start(grid, configure(rounds=4), {1: lambda: (grid.remove(6), grid.add(partition_id=5))})
    assert [(row.clients, row.refused) for row in seen.rows][2:] == [(6, 0), (6, 0)]
    assert seen.rows[1].clients >= 5
    assert grid.hellos == 7


def test_a_node_that_goes_for_good_is_missed(
    configure: Configure, make_grid: Any, start: Callable[..., After], caplog: pytest.LogCaptureFixture
) -> None:
    grid = make_grid(kind=Moving)
    began = time.monotonic()
    seen = start(grid, configure(), {1: lambda: grid.remove(6)}, FlowerConfig(wait=5, deadline=60))
    assert time.monotonic() - began < 30  # nobody waits for a node that is known to have gone
    assert [(row.clients, row.missing) for row in seen.rows] == [(6, 0), (5, 1), (5, 1)]
    assert "round 2: client 5 was not asked: no node serves it now" in caplog.text


@pytest.mark.parametrize("backwards", [False, True])
def test_no_introduction_is_lost_in_the_bustle_of_a_round(
    backwards: bool, configure: Configure, make_grid: Any, start: Callable[..., After]
) -> None:
    """In whatever order messages come, also when the last update that is needed comes before an introduction."""

    class Ordered(Moving):
        def pull_messages(self, message_ids: Iterable[str]) -> Sequence[Message]:
            found = list(super().pull_messages(message_ids))
            return found[::-1] if backwards else found

    grid = make_grid(kind=Ordered)
    flower = FlowerConfig(wait=5, deadline=0.5, spare=1)
    seen = start(
        grid, configure(rounds=4, cohort__size=5), {1: lambda: (grid.remove(6), grid.add(partition_id=5))}, flower
    )
    assert [row.clients for row in seen.rows] == [5, 5, 5, 5]
    assert 7 in grid.at_work


class Stuttering(Moving):
    """A grid that delivers every answer twice."""

    def pull_messages(self, message_ids: Iterable[str]) -> Sequence[Message]:
        return [message for message in super().pull_messages(message_ids) for _ in range(2)]


def test_what_is_said_twice_counts_once(
    configure: Configure, make_grid: Any, start: Callable[..., After], alike: Alike, expected: Result
) -> None:
    seen = start(make_grid(kind=Stuttering), configure())
    assert alike(seen.weights, expected.model.state_dict())
    assert [(row.clients, row.refused) for row in seen.rows] == [(6, 0)] * 3


def test_an_update_that_comes_again_when_there_are_enough_is_left_alone(
    configure: Configure, make_grid: Any, start: Callable[..., After]
) -> None:
    flower = FlowerConfig(wait=5, deadline=0.5, spare=1)
    seen = start(make_grid(kind=Stuttering), configure(cohort__size=5), flower=flower)
    assert [row.clients for row in seen.rows] == [5] * 3


def test_rounds_are_not_burnt_while_nobody_is_there(
    configure: Configure, make_grid: Any, start: Callable[..., After]
) -> None:
    """All nodes go at once, and come back: a round in which nobody can be asked waits for them."""
    grid = make_grid(kind=Moving)

    def restart() -> None:
        for node in range(1, 7):
            grid.remove(node)
            grid.add(partition_id=node - 1)

    seen = start(grid, configure(rounds=4), {1: restart})
    assert [row.clients for row in seen.rows][-2:] == [6, 6]


def test_a_node_that_was_not_ready_is_asked_again(
    configure: Configure, make_grid: Any, start: Callable[..., After], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feddst.flower.nodes.AGAIN", 0.1)
    failed: list[int] = []

    class Sleepy(InProcessGrid):
        def _answer(self, message: Message) -> Message:
            if message.metadata.message_type == HELLO and message.metadata.dst_node_id == 6 and not failed:
                failed.append(6)
                context = self._contexts[6]
                known = dict(context.node_config)
                context.node_config.clear()
                try:
                    return super()._answer(message)
                finally:
                    context.node_config.update(known)
            return super()._answer(message)

    seen = start(make_grid(kind=Sleepy), configure())
    assert failed == [6]
    assert seen.rows[-1].clients == 6


def test_of_two_nodes_that_claim_to_be_one_client_one_serves(
    configure: Configure,
    make_grid: Any,
    start: Callable[..., After],
    alike: Alike,
    expected: Result,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = make_grid(kind=Moving)
    grid.add(partition_id=2)
    seen = start(grid, configure())
    assert alike(seen.weights, expected.model.state_dict())
    assert [(row.clients, row.refused, row.missing) for row in seen.rows] == [(6, 0, 0)] * 3
    assert "as client 2" in caplog.text


def test_when_one_of_two_goes_the_other_serves(
    configure: Configure, make_grid: Any, start: Callable[..., After]
) -> None:
    grid = make_grid(kind=Moving)
    second = grid.add(partition_id=2)
    seen = start(grid, configure(rounds=4), {1: lambda: grid.remove(second)})
    assert seen.rows[-1].clients == 6
    grid = make_grid(kind=Moving)
    grid.add(partition_id=2)
    seen = start(grid, configure(rounds=4), {1: lambda: grid.remove(3)})
    assert seen.rows[-1].clients == 6


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"partition_id": 6}, "node 7 says it is client 6, but there are 6"),
        ({"partition_id": 2**40}, f"node 7 says it is client {2**40}, but there are 6"),
        ({"partition_id": -1}, "node 7 cannot be used: the node's config must have"),
        ({"partition_id": "2"}, "node 7 cannot be used: the node's config must have"),
        ({}, "node 7 cannot be used: "),
    ],
    ids=["one too many", "far too many", "negative", "a text", "none"],
)
def test_a_node_that_is_no_client_is_left_out(
    config: dict[str, Any],
    said: str,
    configure: Configure,
    federation: Federation,
    network: Any,
    start: Callable[..., After],
    alike: Alike,
    expected: Result,
    caplog: pytest.LogCaptureFixture,
) -> None:
    everybody = [*(federation.client_data(client) for client in range(6)), federation.client_data(0)]

    def images_of(context: Context) -> Any:
        """As many images as anybody wants, so that only its number can be wrong."""
        partition = context.node_config.get("partition-id", 6)
        return everybody[partition if isinstance(partition, int) and 0 <= partition < 6 else 6]

    grid = Moving(client_app(network, images_of, engine=EngineConfig(kind="reference")), 6)
    grid.add(**config)
    seen = start(grid, configure())
    assert alike(seen.weights, expected.model.state_dict())
    assert said in caplog.text


def test_a_run_begins_with_those_who_have_come(
    configure: Configure, play: Play, make_grid: Any, caplog: pytest.LogCaptureFixture
) -> None:
    on_grid = play(configure(), grid=make_grid(nodes=4), flower=FlowerConfig(wait=0.1))
    assert [(row.clients, row.missing) for row in on_grid.rows] == [(4, 2)] * 3
    assert "going on with 4 of 6 clients, each of which needs a node" in caplog.text
    assert "--federation-config 'num-supernodes=6'" in caplog.text


def test_clients_that_come_later_serve_then(configure: Configure, make_grid: Any, start: Callable[..., After]) -> None:
    grid = make_grid(kind=Moving, nodes=4)
    grid_rows = start(
        grid,
        configure(rounds=4),
        {1: lambda: (grid.add(partition_id=4), grid.add(partition_id=5))},
        FlowerConfig(wait=0.1),
    ).rows
    assert (grid_rows[0].clients, grid_rows[-1].clients) == (4, 6)


@pytest.mark.parametrize("wait", [0.0, 0.1])
def test_when_nobody_comes_that_is_an_error(wait: float, configure: Configure, play: Play, make_grid: Any) -> None:
    with pytest.raises(FlowerError, match=f"none of 6 clients has come within {wait:g} s"):
        play(configure(), grid=make_grid(nodes=0), flower=FlowerConfig(wait=wait))


def test_without_patience_those_who_are_there_are_asked_all_the_same(
    configure: Configure, play: Play, make_grid: Any
) -> None:
    on_grid = play(configure(rounds=1), grid=make_grid(), flower=FlowerConfig(wait=0))
    assert on_grid.rows[0].clients == 6


def test_a_task_for_somebody_else_is_not_carried_out(
    configure: Configure, make_grid: Any, start: Callable[..., After], caplog: pytest.LogCaptureFixture
) -> None:
    """Two nodes change places while a round is under way."""

    class Swapped(InProcessGrid):
        def _answer(self, message: Message) -> Message:
            if message.metadata.message_type == TRAIN and message.metadata.dst_node_id in (1, 2):
                message.metadata.dst_node_id = 3 - message.metadata.dst_node_id
            return super()._answer(message)

    seen = start(make_grid(kind=Swapped), configure(rounds=1))
    assert (seen.rows[0].clients, seen.rows[0].refused) == (4, 2)
    assert "this task is for client 0, this is client 1" in caplog.text


def test_in_flowers_own_loop_nodes_come_back_too(
    configure: Configure, federation: Federation, network: Any, make_grid: Any
) -> None:
    grid = make_grid(kind=Moving)
    begin = ArrayRecord(make_module(network, 0).state_dict())

    class Restarting(Strategy):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            found = super().aggregate_train(server_round, replies)
            if server_round == 1:
                grid.remove(6)
                grid.add(partition_id=5)
            return found

    strategy = Restarting(configure(rounds=4), model=network, data=federation, flower=HASTY)
    result = flwr.serverapp.strategy.Strategy.start(strategy, grid, begin, num_rounds=4)
    clients = [metrics["clients"] for metrics in result.train_metrics_clientapp.values()]
    assert clients[0] == clients[-1] == 6


def test_in_flowers_own_loop_a_round_without_anybody_is_a_round(
    configure: Configure, federation: Federation, network: Any, make_grid: Any
) -> None:
    grid = make_grid(kind=Moving)
    begin = ArrayRecord(make_module(network, 0).state_dict())

    class Leaving(Strategy):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            found = super().aggregate_train(server_round, replies)
            if server_round == 1:
                for node in range(1, 7):
                    grid.remove(node)
            return found

    strategy = Leaving(configure(), model=network, data=federation, flower=HASTY)
    result = flwr.serverapp.strategy.Strategy.start(strategy, grid, begin, num_rounds=3)
    assert [metrics["clients"] for metrics in result.train_metrics_clientapp.values()] == [6, 0, 0]
