"""Sprout: what it keeps by hand, and exact counts whatever its options."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import feddst
from feddst.core import InitialModel, Layer, ServerState, SparseSum, Update, count_active
from feddst.data import Dataset
from feddst.errors import OptionError
from feddst.methods import Adaptive, ServerOptimizer, Sprout, Sprouting
from feddst.methods.sprout import between, deal, expected_movement, scarcity, spare
from feddst.sparsity import Distribution, Sparsity


def model(seed: int = 0) -> InitialModel:
    draws = torch.Generator().manual_seed(seed)
    shapes = {"conv": (6, 4, 3, 3), "fc": (20, 30)}
    params = {name: torch.randn(shape, generator=draws) for name, shape in shapes.items()}
    return InitialModel({**params, "bias": torch.zeros(6)}, tuple(Layer(name, shape) for name, shape in shapes.items()))


def round_of(method: Sprout, state: ServerState) -> ServerState:
    """Two clients who send back what they received, a little larger, or gradients, if they are asked for them."""
    total = SparseSum(state.masks)
    values = {n: v[state.masks[n]] * 1.1 if n in state.masks else v for n, v in state.params.items()}
    draws = torch.Generator().manual_seed(state.round)
    for client in range(2):
        if method.plan(state, client).train:
            total.add(Update(client, state.round, 1, values))
        else:
            gradient = {name: torch.randn(value.shape, generator=draws) for name, value in state.params.items()}
            total.add(Update(client, state.round, 1, {}, extra={"gradient": gradient}))
    return method.aggregate(state, total)


def moving(level: float, distribution: Distribution = "uniform", **options: Any) -> Sprout:
    """Sprout that does not grow: weights of its mask are replaced every round, and forever, unless options say else."""
    always = {"every": 1, "until": 10**6, "start": level, "spread": "same"}
    return Sprout(sparsity=Sparsity(level, distribution), sprout=Sprouting(**{**always, **options}))


def growing(level: float, start: float, begin: int = 10, end: int = 30, **options: Any) -> Sprout:
    sprout = Sprouting(**{"start": start, "spread": "same", "begin": begin, "end": end, **options})
    return Sprout(sparsity=Sparsity(level, "uniform"), sprout=sprout)


def counts(method: Sprout, *rounds: int) -> list[list[int]]:
    """How many weights two layers of 100 and 900 have after these rounds."""
    layers = Layer("a", (10, 10)), Layer("b", (30, 30))
    return [list(method.budgets(layers, r).values()) for r in rounds]


def test_layers_grow_by_the_same_factor_each_round() -> None:
    assert counts(growing(0.84, start=0.99), 0, 10, 15, 20, 25, 30, 99) == [
        [1, 9], [1, 9], [2, 18], [4, 36], [8, 72], [16, 144], [16, 144]
    ]  # fmt: skip
    assert counts(growing(0.9, start=0.6), 0, 20, 30) == [[40, 360], [20, 180], [10, 90]]
    assert counts(growing(0.9, start=0.9), 0, 99) == [[10, 90]] * 2


def test_layers_may_begin_with_other_shares_than_they_end_with() -> None:
    """1:3 at first, by the root of their sizes, and 1:9 in the end."""
    assert counts(growing(0.68, start=0.98, spread="root"), 10, 20, 30) == [[5, 15], [13, 66], [32, 288]]


def test_no_layer_shrinks_unless_the_network_does() -> None:
    """Equally many at first; the small layer, for which 10 are planned, keeps its 25, and the large one pays for it."""
    assert counts(growing(0.9, start=0.95, spread="even"), 10, 20, 30) == [[25, 25], [25, 43], [25, 75]]
    assert counts(growing(0.9, start=0.9, spread="even"), 10, 30) == [[50, 50], [50, 50]]
    assert counts(growing(0.9, start=0.8, spread="even"), 10, 30) == [[100, 100], [10, 90]]


@pytest.mark.parametrize(("first", "last", "halfway"), [(0, 0, 0), (0, 3, 1), (8, 0, 1), (4, 9, 6), (5, 5, 5)])
def test_layers_that_end_or_begin_with_nothing_have_something_on_the_way(first: int, last: int, halfway: int) -> None:
    assert between(first, last, 0.5) == halfway
    assert between(first, last, 1) == last
    assert between(first, last, 0) == (first or min(last, 1))


def test_budgets_do_not_depend_on_the_order_of_layers() -> None:
    """Of three layers of 100 with 61 weights in all one has a weight more: the same one for whoever asks."""
    layers = [Layer(name, (10, 10)) for name in ("l2", "l10", "l1")]
    params = {layer.name: torch.rand(10, 10, generator=torch.Generator().manual_seed(0)) for layer in layers}
    method = growing(0.5, start=1 - 61 / 300, begin=50, end=100, every=1)
    state = method.init(InitialModel(params, tuple(layers)), seed=0)
    assert sorted(state.budgets.values()) == [20, 20, 21]
    assert dict(round_of(method, state).budgets) == dict(state.budgets)


def test_what_is_replaced_falls_as_a_cosine() -> None:
    timetable = Sprouting(alpha=0.4, until=100)
    assert [timetable.share(r) for r in (0, 50, 100, 101)] == pytest.approx([0.4, 0.2, 0.0, 0.0])


def test_the_smallest_leave_and_as_many_enter_at_zero() -> None:
    method = moving(0.5, alpha=0.25)
    params = {"w": torch.tensor([[8.0, -7.0, 6.0, 5.0], [0.4, 0.3, 0.2, 0.1]])}
    state = method.init(InitialModel(params, (Layer("w", (2, 4)),)), seed=3)
    assert state.masks["w"].tolist() == [[True] * 4, [False] * 4]
    after = round_of(method, state)
    assert after.masks["w"][0].tolist() == [True, True, True, False]  # 5 was the smallest of four
    assert int(after.masks["w"][1].sum()) == 1
    assert torch.allclose(after.params["w"][0], torch.tensor([8.8, -7.7, 6.6, 0.0]))
    assert after.params["w"][1].tolist() == [0.0] * 4


@pytest.mark.parametrize(("alpha", "entered"), [(0.5, 2), (0.75, 2), (1.0, 2)])
def test_nothing_leaves_and_enters_at_once(alpha: float, entered: int) -> None:
    """Of eight weights six are in the mask: at most two can be replaced, however large α is."""
    method = moving(0.25, alpha=alpha)
    params = {"w": torch.tensor([[8.0, -7.0, 6.0, 5.0], [0.4, 0.3, 0.2, 0.1]])}
    state = method.init(InitialModel(params, (Layer("w", (2, 4)),)), seed=3)
    after = round_of(method, state)
    assert int((after.masks["w"] & ~state.masks["w"]).sum()) == entered
    assert after.params["w"][after.masks["w"] & ~state.masks["w"]].eq(0).all()
    assert after.masks["w"][0].all()  # the two that have left are the smallest


@given(
    level=st.floats(0.3, 0.95),
    start=st.floats(0.0, 0.98) | st.none(),
    begin=st.integers(1, 8),
    length=st.integers(0, 8),
    every=st.integers(1, 4),
    alpha=st.floats(0, 1),
    drop=st.sampled_from(["magnitude", "movement", "product"]),
    grace=st.sampled_from([0, 5, 9]),
    where=st.sampled_from(["random", "scarce", "movement", "gradient"]),
    layers=st.sampled_from(["fixed", "movement"]),
    spread=st.sampled_from(["same", "root", "even"]),
)
@settings(max_examples=40)
def test_every_layer_keeps_exactly_its_budget(
    level: float,
    start: float | None,
    begin: int,
    length: int,
    every: int,
    alpha: float,
    drop: str,
    grace: int,
    where: str,
    layers: str,
    spread: str,
) -> None:
    first = level if start is None else start
    every = max(every, 2) if where == "gradient" else every
    options = Sprouting(every, alpha, 12, drop, grace, where, layers, first, spread, begin, begin + length)  # type: ignore[arg-type]
    method = Sprout(sparsity=Sparsity(level), sprout=options)
    state = method.init(model(), seed=1)
    for _ in range(begin + length + 2 * every):
        before, state = state, round_of(method, state)
        assert count_active(state.masks) == dict(state.budgets)
        assert all(state.params[name][mask & ~before.masks[name]].eq(0).all() for name, mask in state.masks.items())
        assert all(state.params[name][~mask].eq(0).all() for name, mask in state.masks.items())
        assert all(state.extra[f"movement/{n}"][~m].eq(0).all() for n, m in state.masks.items() if options.watches)
    planned = method.budgets(model().layers, begin + length)
    assert sum(state.budgets.values()) == sum(Sparsity(level).budgets(model().layers).values())
    assert layers == "movement" or dict(state.budgets) == planned
    if first > level:
        assert all(planned[name] >= count for name, count in method.budgets(model().layers, 0).items())
    if spread == "same":
        assert planned == Sparsity(level).budgets(model().layers)


def test_weights_go_to_layers_where_weights_move() -> None:
    """Both layers have lost one of two weights; what one has moved twice as far as the other, both are dealt to it."""
    method = moving(0.5, alpha=0.5, layers="movement")
    params = {"a": torch.tensor([[9.0, 8.0], [0.1, 0.2]]), "b": torch.tensor([[9.0, 8.0], [0.1, 0.2]])}
    state = method.init(InitialModel(params, (Layer("a", (2, 2)), Layer("b", (2, 2)))), seed=0)
    total = SparseSum(state.masks)
    total.add(Update(0, 1, 1, {"a": torch.tensor([9.8, 8.0]), "b": torch.tensor([9.0, 7.9])}))
    after = method.aggregate(state, total)
    assert after.budgets == {"a": 3, "b": 1}
    assert count_active(after.masks) == after.budgets
    assert after.masks["a"].tolist() == [[True, False], [True, True]]  # 8 has left, and may not come back at once
    assert after.masks["b"].tolist() == [[True, False], [False, False]]


def test_layers_may_give_up_all_but_one() -> None:
    method = moving(0.9, "erk", alpha=1.0, layers="movement")
    state = method.init(model(), seed=0)
    for _ in range(3):
        state = round_of(method, state)
        assert count_active(state.masks) == dict(state.budgets)
        assert min(state.budgets.values()) > 0
        assert sum(state.budgets.values()) == sum(Sparsity(0.9).budgets(model().layers).values())


@pytest.mark.parametrize(
    ("count", "wants", "rooms", "dealt"),
    [
        (10, [1.0, 4.0], [99, 99], [2, 8]),
        (10, [1.0, 4.0], [99, 5], [5, 5]),  # what is over goes to the other
        (10, [1.0, 1.0, 1.0], [99, 99, 99], [4, 3, 3]),
        (3, [0.0, 0.0], [1, 2], [1, 2]),
        (4, [5.0, 0.0], [3, 9], [3, 1]),
        (0, [1.0, 2.0], [3, 3], [0, 0]),
    ],
)
def test_dealing(count: int, wants: list[float], rooms: list[int], dealt: list[int]) -> None:
    assert deal(count, wants, rooms) == dealt


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 50)), min_size=1, max_size=6), st.floats(0, 1))
def test_all_is_dealt_and_nobody_gets_more_than_there_is_room_for(parts: list[tuple[float, int]], share: float) -> None:
    wants, rooms = [want for want, _ in parts], [room for _, room in parts]
    count = round(share * sum(rooms))
    dealt = deal(count, wants, rooms)
    assert sum(dealt) == count
    assert all(0 <= got <= room for got, room in zip(dealt, rooms, strict=True))


def test_adam_forgets_what_has_left_and_movement_too() -> None:
    sprout = moving(0.5, "erk", alpha=0.5, drop="movement")
    method = replace(sprout, server=ServerOptimizer("adam"))
    state = round_of(method, round_of(method, method.init(model(), seed=0)))
    before, state = state, round_of(method, state)
    for name, mask in state.masks.items():
        entered = mask & ~before.masks[name]
        assert entered.any()
        assert torch.allclose(state.extra[f"v/{name}"][entered | ~mask], torch.tensor(1e-6))
        assert state.extra[f"m/{name}"][entered | ~mask].eq(0).all()
        assert state.extra[f"movement/{name}"][~mask].eq(0).all()
        assert state.extra[f"movement/{name}"][mask].gt(0).any()
    assert count_active(state.masks) == dict(state.budgets)


def test_with_adam_new_weights_may_begin_as_the_others_are() -> None:
    sprout = moving(0.5, "erk", alpha=0.5)
    method = replace(sprout, server=ServerOptimizer("adam"), adaptive=Adaptive(entering="layer"))
    before = round_of(method, round_of(method, method.init(model(), seed=0)))
    state = round_of(method, before)
    for name, mask in state.masks.items():
        v, stayed = state.extra[f"v/{name}"], mask & before.masks[name]
        assert torch.allclose(v[~stayed], v[stayed].mean())
        assert v[stayed].mean() > 1e-5
        assert (mask & ~stayed).any()


@pytest.mark.parametrize("start", [0.8, 0.9])
def test_budgets_that_count_biases_go_on_counting_them(start: float) -> None:
    """`erk-published` does. From S = 0.9 the density grows to its end within four rounds."""
    draws = torch.Generator().manual_seed(0)
    shapes = {"conv.weight": (6, 4, 3, 3), "fc.weight": (20, 30)}
    params = {name: torch.randn(shape, generator=draws) for name, shape in shapes.items()}
    params |= {"conv.bias": torch.zeros(6), "fc.bias": torch.zeros(20)}
    layers = Layer("conv.weight", (6, 4, 3, 3), 6), Layer("fc.weight", (20, 30), 20)
    spread = Sparsity(0.8, "erk-published")
    assert spread.budgets(layers) != spread.budgets([replace(layer, biases=0) for layer in layers])
    method = moving(0.8, "erk-published", alpha=0.1, start=start, begin=1, end=4)
    state = method.init(InitialModel(params, layers), seed=1)
    for _ in range(4):
        state = round_of(method, state)
    assert dict(state.budgets) == count_active(state.masks) == spread.budgets(layers)


def test_movement_is_remembered_for_some_rounds() -> None:
    method = moving(0.5, every=10**6, drop="movement")
    state = method.init(InitialModel({"w": torch.tensor([[2.0, 4.0], [1.0, 1.0]])}, (Layer("w", (2, 2)),)), seed=0)
    state = round_of(method, state)  # 2, 4 become 2.2, 4.4
    assert torch.allclose(state.extra["movement/w"], torch.tensor([[0.04, 0.16], [0.0, 0.0]]))
    state = round_of(method, state)  # 2.42, 4.84
    assert torch.allclose(state.extra["movement/w"], torch.tensor([[0.036 + 0.0484, 0.144 + 0.1936], [0.0, 0.0]]))


@pytest.mark.parametrize(("drop", "leaves"), [("magnitude", 2), ("movement", 0), ("product", 1)])
def test_what_leaves(drop: str, leaves: int) -> None:
    options = Sprouting(drop=drop)  # type: ignore[arg-type]
    theta, movement = torch.tensor([[3.0, -0.2, 0.1]]), torch.tensor([[0.01, 0.25, 9.0]])  # products 0.3, 0.1, 0.3
    importance = Sprout(sprout=options).importance(theta, movement).abs()
    assert int(importance.argmin()) == leaves


def test_what_has_grown_is_spared_for_some_rounds() -> None:
    """Of four weights one is replaced after each round, for two of which it may not leave."""
    method = moving(0.5, alpha=0.25, grace=2)
    params = {"w": torch.tensor([[8.0, -7.0, 6.0, 5.0], [0.4, 0.3, 0.2, 0.1]])}
    state = method.init(InitialModel(params, (Layer("w", (2, 4)),)), seed=3)
    grown: list[torch.Tensor] = []
    for small in (3, 2, None, None):  # 5 leaves, then 6; then what has grown, which is 0, the oldest first
        before, state = state, round_of(method, state)
        entered, left = (
            one["w"] & ~other["w"] for one, other in ((state.masks, before.masks), (before.masks, state.masks))
        )
        assert torch.equal(left, grown.pop(0)) if small is None else int(left[0].nonzero()) == small
        grown.append(entered)
    assert state.masks["w"][0, :2].all()


def test_where_all_have_grown_lately_nothing_leaves() -> None:
    method = moving(0.5, alpha=1.0, grace=2)
    state = method.init(model(), seed=0)
    first = round_of(method, state)
    assert not any((mask & state.masks[name]).any() for name, mask in first.masks.items())
    second = round_of(method, first)
    assert all(torch.equal(mask, first.masks[name]) for name, mask in second.masks.items())
    third = round_of(method, second)
    assert not any((mask & first.masks[name]).any() for name, mask in third.masks.items())


def test_a_layer_that_shrinks_takes_what_is_not_spared_as_long_as_there_is_some() -> None:
    """Of 50 weights 30 are replaced at first and spared; then the budget falls."""
    method = growing(0.6, start=0.5, begin=1, end=4, every=1, alpha=0.6, until=10**6, grace=5)
    params = {"w": torch.rand(10, 10, generator=torch.Generator().manual_seed(0)) + 1}
    state = method.init(InitialModel(params, (Layer("w", (10, 10)),)), seed=0)
    first = round_of(method, state)
    second = round_of(method, first)
    new, left = first.masks["w"] & ~state.masks["w"], first.masks["w"] & ~second.masks["w"]
    assert int(new.sum()) == 30
    assert second.budgets["w"] < first.budgets["w"]
    assert int(left.sum()) == int((first.masks["w"] & ~new).sum())
    assert not (left & new).any()


def test_those_spared_come_last_in_their_order() -> None:
    found = spare(torch.tensor([3.0, -0.5, 0.0, -2.0]), torch.tensor([False, True, True, False]))
    assert found.argsort().tolist() == [3, 0, 2, 1]
    small = spare(torch.tensor([3e-9, 1e-9, 2e-9, 5.0]), torch.tensor([True, True, True, False]))
    assert small.argsort().tolist() == [3, 1, 2, 0]


def test_units_that_have_few_weights_are_likelier_to_get_more() -> None:
    mask = torch.tensor([[1, 0, 1], [0, 0, 1]]).bool()  # outputs have 2 and 1, inputs 1, 0 and 2
    wanted = [[1 / 6, 1 / 3, 1 / 9], [1 / 4, 1 / 2, 1 / 6]]
    assert scarcity(mask).tolist() == [pytest.approx(row) for row in wanted]
    assert torch.equal(
        scarcity(mask[..., None].expand(2, 3, 4))[..., 0], scarcity(mask[..., None].expand(2, 3, 4))[..., 3]
    )


def test_scarce_units_get_what_grows() -> None:
    """Ten of forty outputs have all of 300 weights: of 500 more they get far fewer than at random places."""
    draws = torch.rand(10, 40, generator=torch.Generator().manual_seed(0))
    params = {"w": torch.cat([draws, torch.zeros(30, 40)])}
    crowded = {}
    for where in ("random", "scarce"):
        method = growing(0.5, start=1 - 300 / 1600, begin=1, end=2, every=2, where=where)
        state = method.init(InitialModel(params, (Layer("w", (40, 40)),)), seed=0)
        for _ in range(2):
            state = round_of(method, state)
        assert int(state.masks["w"].sum()) == 800
        crowded[where] = int(state.masks["w"][:10].sum()) - 300
    assert 3 * crowded["scarce"] < crowded["random"]


def test_movement_is_expected_where_others_have_moved() -> None:
    movement, mask = torch.tensor([[4.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), torch.tensor([[1, 0, 1], [0, 0, 1]]).bool()
    found = expected_movement(movement, mask)  # the mean of the three is 2: relative to it 2, ½ and ½
    out, into = (3.5 / 3, 1.5 / 2), (3 / 2, 1.0, 2 / 3)
    wanted = [[(a * b) ** 0.5 for b in into] for a in out]
    assert found.tolist() == [pytest.approx(row) for row in wanted]
    assert expected_movement(torch.zeros(2, 3, 2), torch.zeros(2, 3, 2).bool()).eq(1).all()


def test_weights_grow_where_the_mean_gradient_is_largest() -> None:
    method = moving(0.5, every=2, alpha=0.5, where="gradient")
    params = {"w": torch.tensor([[8.0, -7.0, 6.0, 5.0], [0.4, 0.3, 0.2, 0.1]])}
    state = replace(method.init(InitialModel(params, (Layer("w", (2, 4)),)), seed=3), round=2)
    total = SparseSum(state.masks)
    for weight, row in ((1, [9.0, -4.0, 2.0, 0.0]), (3, [-3.0, -4.0, 0.0, 1.0])):  # together 0, −4, ½ and ¾
        gradient = {"w": torch.tensor([[50.0] * 4, row])}
        total.add(Update(0, 2, weight, {}, extra={"gradient": gradient}))
    after = method.aggregate(state, total)
    assert after.masks["w"].tolist() == [[True, True, False, False], [False, True, False, True]]
    assert after.params["w"].tolist() == [[8.0, -7.0, 0.0, 0.0], [0.0] * 4]
    assert after.round == 3


def test_gradients_are_asked_for_before_a_change_alone() -> None:
    by_gradient: dict[str, Any] = {"every": 2, "where": "gradient"}
    for method, rounds in (
        (moving(0.8, alpha=0.3, until=7, **by_gradient), [2, 4, 6]),
        (moving(0.8, alpha=0.002, until=9, **by_gradient), []),  # of so few weights that is none
        (growing(0.8, start=0.9, begin=4, end=8, **by_gradient), [6, 8]),
        (growing(0.9, start=0.8, begin=4, end=8, **by_gradient), []),  # it shrinks
        (growing(0.8, start=0.8, begin=4, end=8, alpha=0.3, until=5, layers="movement", **by_gradient), [2, 4]),
        (growing(0.8, start=0.9, begin=8, end=10, alpha=0.3, until=5, layers="movement", **by_gradient), [2, 4, 10]),
    ):
        state, asked = method.init(model(), seed=0), []
        for r in range(1, 14):
            plan, before = method.plan(state, 0), state
            assert plan.train == (not plan.steps)
            state = round_of(method, state)
            entered = sum(int((mask & ~before.masks[name]).sum()) for name, mask in state.masks.items())
            assert (entered > 0) == bool(plan.steps)
            asked += [r] if plan.steps else []
        assert asked == rounds


def test_draws_follow_the_seed_and_the_round() -> None:
    method = growing(0.8, start=0.9, begin=1, end=4, every=2)
    ends = []
    for seed in (1, 1, 2):
        state = method.init(model(), seed)
        for _ in range(4):
            state = round_of(method, state)
        ends.append(state.masks["fc"])
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


@pytest.mark.parametrize("where", ["scarce", "movement", "gradient"])
@pytest.mark.parametrize("kind", ["reference", "native", "stacked"])
def test_clients_send_no_masks(digits: Dataset, kind: str, where: str) -> None:
    config = feddst.configure(
        method="sprout",
        rounds=6,
        data={"clients": 4, "images_per_class": 5},
        cohort={"size": 2},
        local={"epochs": 1},
        sprout={"start": 0.95, "begin": 1, "end": 5, "every": 2, "where": where},
        engine={"kind": kind, "workers": 1},
    )
    result = feddst.run(config, data=digits)
    assert [row.upload_mask_bytes for row in result.rows] == [0] * 6
    assert [row.train_loss is None for row in result.rows] == [False, where == "gradient"] * 3
    assert result.rows[-1].entered > 0
    assert result.rows[-1].density == pytest.approx(0.2, abs=1e-3)
    assert result.rows[0].density == pytest.approx(0.05, abs=1e-3)


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(OptionError, match=r"sprout.layers movement has no effect: with sprout.alpha 0, .* replaced"):
        moving(0.8, layers="movement").check()
    with pytest.raises(OptionError, match=r"sprout.drop movement has no effect: .* sprout.until 10 no weight"):
        moving(0.8, alpha=0.1, every=10, until=10, drop="movement").check()
    with pytest.raises(OptionError, match=r"sprout.drop movement has no effect: with sprout.alpha 0"):
        growing(0.8, start=0.9, drop="movement").check()
    growing(0.8, start=0.7, drop="movement").check()
    growing(0.8, start=0.9, layers="movement").check()
    with pytest.raises(OptionError, match=r"sprout.where movement has no effect: with sprout.alpha 0"):
        moving(0.8, where="movement").check()
    growing(0.8, start=0.9, where="movement").check()
    with pytest.raises(OptionError, match=r"sprout.every must be at least 2 with sprout.where gradient, .* got 1"):
        moving(0.8, alpha=0.1, where="gradient").check()
    moving(0.8, alpha=0.1, every=2, where="gradient").check()
    with pytest.raises(OptionError, match=r"sprout.grace must be 0 or more than sprout.every \(10\), .* got 10"):
        moving(0.8, alpha=0.1, every=10, grace=10).check()
    with pytest.raises(OptionError, match=r"sprout.grace 11 has no effect: .* replaced"):
        growing(0.8, start=0.9, grace=11).check()
    moving(0.8, alpha=0.1, every=10, grace=11).check()
    with pytest.raises(OptionError, match=r"sprout.end must be at least sprout.begin \(100\), got 20"):
        replace(Sprout(), sprout=Sprouting(end=20)).check()
