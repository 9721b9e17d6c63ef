"""What a task asks, as JSON: nothing is lost on the way, and nothing else is read."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddst.clients.steps import Growth, InitialPruning, LotteryPruning, Proximal, Readjust, Report
from feddst.clients.steps.initial_pruning import MOST_ROUNDS
from feddst.core import ClientPlan, LocalTraining
from feddst.errors import WireError
from feddst.flower.tasks import MOST_BYTES, read_task, write_task
from feddst.wire import ClientTask, Message, WireConfig

whole = st.integers(0, 2**40)
positive = st.integers(1, 2**40)
share = st.floats(0, 1, exclude_max=True)
names = st.text(max_size=12)
counts = st.dictionaries(names, whole, max_size=3)
local = st.builds(
    LocalTraining,
    epochs=positive,
    batch=positive,
    lr=st.floats(1e-300, 1e300),
    momentum=share,
    l2=st.floats(0, 1e300),
    order=st.sampled_from(["shuffled", "fixed"]),
    weigh_by=st.sampled_from(["images", "batches", "equal"]),
)
growth = st.builds(
    Growth,
    rule=st.sampled_from(["gradient", "random"]),
    grow_from=st.sampled_from(["inactive", "any"]),
    images=st.sampled_from(["all", "last-batch"]),
    max_images=positive,
    weights=st.sampled_from(["pruned", "unpruned"]),
)
report = st.builds(
    Report,
    kind=st.sampled_from(["gradient", "hessian-gradient", "sign", "squared-gradient"]),
    images=st.sampled_from(["all", "minibatch", "balanced", "minibatches"]),
    temperature=st.floats(1e-3, 1e3),
    bound=st.floats(1e-3, 1e3),
    within=st.frozensets(names, max_size=3),
)
step = st.one_of(
    report,
    st.builds(Readjust, epoch=positive, drop=counts, budgets=counts, growth=growth),
    st.builds(Proximal, mu=st.floats(0, 1e9), gradient=st.sampled_from(["exact", "detached"])),
    st.builds(LotteryPruning, threshold=share, prune=share, held_out=share, budgets=counts),
    st.builds(
        InitialPruning,
        rounds=st.integers(1, MOST_ROUNDS),
        every=positive,
        prunable=share,
        times=st.dictionaries(names, share, max_size=3),
        constant=share,
        steady=share,
        in_a_row=positive,
    ),
)
plan = st.builds(
    ClientPlan,
    local=local,
    steps=st.lists(step, max_size=4).map(tuple),
    keep=st.frozensets(names, max_size=3),
    train=st.booleans(),
)
wire = st.builds(
    WireConfig,
    values=st.sampled_from(["float32", "bfloat16", "q8", "q4", "q2", "sign"]),
    download=st.sampled_from(["float32", "bfloat16", "float16"]),
    mask=st.sampled_from(["difference", "positions", "bitmap"]),
    packing=st.sampled_from(["plain", "deflate"]),
    remember=whole,
)
MESSAGE = Message(b"broadcast")
runs = st.from_regex("[0-9a-f]{1,24}", fullmatch=True)
tasks = st.builds(ClientTask, client=whole, seed=whole, plan=plan, message=st.just(MESSAGE), wire=wire)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)

GROWING = Readjust(1, {"a.weight": 3}, {"a.weight": 9})
STEPS = (GROWING, Proximal(), LotteryPruning(0.5, 0.1, 0.2, {"a.weight": 2}), Report("sign"))
RUN, TASK = "ab12", ClientTask(3, 7, ClientPlan(LocalTraining(), STEPS), MESSAGE)
EXAMPLE = write_task(RUN, TASK)


def tree() -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(EXAMPLE))


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a tree of JSON."""
    if path:
        yield path
    steps = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in steps:
        yield from places(child, (*path, key))


def changed(path: tuple[Any, ...], value: Any) -> str:
    """The example with something else at one place."""
    whole = tree()
    node = whole
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return json.dumps(whole)


def read(text: str) -> tuple[str, ClientTask]:
    return read_task(text, MESSAGE)


def asked(task: ClientTask) -> tuple[Any, ...]:
    """All of a task that is told."""
    return task.client, task.seed, task.plan, task.wire


@settings(max_examples=40)
@given(runs, tasks)
def test_tasks_come_through(run: str, task: ClientTask) -> None:
    text = write_task(run, task)
    name, found = read(text)
    assert (name, *asked(found)) == (run, *asked(task))
    assert found.message is MESSAGE
    assert (len(found.data), found.state.empty, found.initial) == (0, True, {})
    assert write_task(name, found) == text
    assert "\n" not in text


@pytest.mark.parametrize("change", [{"rounds": 0}, {"rounds": MOST_ROUNDS + 1}, {"every": 0}, {"in_a_row": 0}])
def test_a_first_stage_without_end_is_refused(change: dict[str, Any]) -> None:
    settle = replace(InitialPruning(rounds=9, every=3, prunable=0.3, times={}, constant=1.0), **change)
    text = write_task("r", ClientTask(0, 0, ClientPlan(LocalTraining(), (settle,)), MESSAGE))
    with pytest.raises(WireError, match="initial pruning lasts"):
        read(text)


def test_equal_tasks_are_equal_lines() -> None:
    some = [ClientPlan(LocalTraining(), keep=frozenset(names)) for names in (("a", "b", "c"), ("c", "b", "a"))]
    one, two = (write_task("r", ClientTask(0, 0, each, MESSAGE)) for each in some)
    assert one == two


@given(st.sampled_from(list(places(tree()))), anything)
def test_something_else_in_one_place_is_refused_or_means_what_it_says(path: tuple[Any, ...], value: Any) -> None:
    try:
        found = read(changed(path, value))
    except WireError:
        return
    said = json.loads(changed(path, value))
    said["plan"]["keep"] = sorted(set(said["plan"]["keep"]))
    assert json.loads(write_task(*found)) == said


@given(anything)
def test_other_json_is_refused(value: Any) -> None:
    with pytest.raises(WireError):
        read(json.dumps(value))


@given(st.text() | st.binary().map(lambda noise: noise.decode("latin-1")))
def test_noise_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        read(text)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("plan", "local", "lr"), float("nan")),
        (("plan", "local", "lr"), float("inf")),
        (("plan", "local", "lr"), 10**400),
        (("plan", "local", "lr"), "0.1"),
        (("plan", "local", "lr"), True),
        (("plan", "local", "lr"), 0),
        (("plan", "local", "epochs"), 2.0),
        (("plan", "local", "epochs"), True),
        (("plan", "local", "epochs"), 0),
        (("plan", "local", "batch"), -1),
        (("plan", "local", "order"), "backwards"),
        (("plan", "local", "order"), ["shuffled"]),
        (("plan", "local"), None),
        (("plan", "local", "extra"), 1),
        (("plan", "steps"), None),
        (("plan", "steps"), {"step": "report", "kind": "sign"}),
        (("plan", "steps"), [None]),
        (("plan", "steps"), [{"step": "nothing"}]),
        (("plan", "steps"), [{"step": ["report"]}]),
        (("plan", "steps"), [{"mu": 1.0, "gradient": "exact"}]),
        (("plan", "keep"), "a.weight"),
        (("plan", "keep"), [["a.weight"]]),
        (("plan", "keep"), [1]),
        (("plan", "train"), 1),
        (("plan", "steps", 0, "drop"), []),
        (("plan", "steps", 0, "drop"), {"a.weight": 1.5}),
        (("plan", "steps", 0, "growth", "rule"), None),
        (("plan", "steps", 2, "threshold"), None),
        (("wire", "values"), "zip"),
        (("wire", "values"), 4),
        (("wire", "remember"), -1),
        (("seed",), -1),
        (("seed",), 2**63),
        (("client",), -1),
        (("client",), None),
        (("run",), ""),
        (("run",), "../../etc/passwd"),
        (("run",), "a/b"),
        (("run",), "a\x00"),
        (("run",), "\ud800"),
        (("more",), {}),
    ],
    ids=lambda part: ".".join(map(str, part)) if isinstance(part, tuple) else str(part)[:20],
)
def test_what_makes_no_sense_is_refused(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(WireError):
        read(changed(path, value))


@pytest.mark.parametrize("path", [path for path in places(tree()) if isinstance(path[-1], str)])
def test_nothing_may_be_missing(path: tuple[Any, ...]) -> None:
    whole = tree()
    node = whole
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    if path[-1] == "a.weight":  # a table of layers may have any
        assert read(json.dumps(whole))[0] == RUN
        return
    with pytest.raises(WireError, match=r"has other entries than|is a step that is not known here"):
        read(json.dumps(whole))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        '{"run":' * 100_000,
        EXAMPLE + " x",
        EXAMPLE[:-1],
        EXAMPLE.replace("0.01", "1" + "0" * 5000),
        EXAMPLE.replace("0.01", "1e999"),
    ],
    ids=["empty", "lists in lists", "tables in tables", "more", "cut short", "a long number", "a large number"],
)
def test_text_that_is_no_task_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        read(text)


def test_long_text_is_not_even_read() -> None:
    padded = EXAMPLE + " " * MOST_BYTES
    with pytest.raises(WireError, match="at most 1048576 are read"):
        read(padded)
    assert write_task(*read(padded[:MOST_BYTES])) == EXAMPLE
