"""Five thousand damaged and hostile payloads: each is refused or a valid update. And the fuzzer notices when not."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from feddst.core import Update


@pytest.fixture(scope="module")
def fuzz(script_named: Callable[[str], ModuleType]) -> ModuleType:
    return script_named("fuzz_wire")


def test_no_payload_gets_through_that_should_not(fuzz: ModuleType) -> None:
    report = fuzz.fuzz(count=5000, seed=1)
    assert report.failures == []
    assert report.rejected + report.accepted == 5000
    assert report.accepted > 200
    assert len(report.reasons) > 35
    assert report.measured > 500
    assert 1 < report.largest_ratio < 2.1


@pytest.fixture(scope="module")
def target(fuzz: ModuleType) -> Any:
    """A small network whose mask was readjusted."""
    return next(target for target in fuzz._small_targets() if target.name == "readjusted")


def test_a_case_is_the_same_every_time(fuzz: ModuleType, target: Any) -> None:
    cases = [[fuzz.make_case(seed, index, [target], [target]) for index in range(40)] for seed in (1, 1, 2)]
    first, again, other = ([case.payload for case in row] for row in cases)
    assert first == again
    assert sum(a != b for a, b in zip(first, other, strict=True)) > 35


def outcome(fuzz: ModuleType, target: Any, decode: Callable[..., Update], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The failures that are reported if payloads were decoded like this."""
    monkeypatch.setattr(fuzz, "decode_update", decode)
    report = fuzz.Tally()
    answer = target.answers[0]
    fuzz.run_case(fuzz.Case(target, target.asking_for(answer), answer, ("none",)), report, measure=True)
    failures: list[str] = report.failures
    return failures


def test_a_correct_decoder_is_not_blamed(fuzz: ModuleType, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(fuzz, target, fuzz.decode_update, monkeypatch) == []


def test_an_exception_is_a_failure(fuzz: ModuleType, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(payload: bytes, task: Any) -> Update:
        raise IndexError("out of range")

    (failure,) = outcome(fuzz, target, broken, monkeypatch)
    assert "IndexError: out of range" in failure


@pytest.mark.parametrize("make", [lambda n: np.ones(n, dtype=np.uint8), lambda n: torch.ones(n, dtype=torch.uint8)])
def test_needing_much_memory_is_a_failure(
    fuzz: ModuleType, target: Any, monkeypatch: pytest.MonkeyPatch, make: Callable[[int], object]
) -> None:
    decode = fuzz.decode_update

    def greedy(payload: bytes, task: Any) -> Update:
        make(100_000)
        update: Update = decode(payload, task)
        return update

    (failure,) = outcome(fuzz, target, greedy, monkeypatch)
    assert "needed 1" in failure


SPOIL: list[Callable[[Update], Update]] = [
    lambda update: replace(update, weight=0),
    lambda update: replace(update, round=1),
    lambda update: replace(update, params={**update.params, "fc": update.params["fc"][1:]}),
    lambda update: replace(update, params={**update.params, "fc": update.params["fc"].double()}),
    lambda update: replace(update, params={**update.params, "fc": update.params["fc"] * float("nan")}),
    lambda update: replace(update, params={**update.params, "bias": update.params["bias"] + 1e10}),
    lambda update: replace(update, buffers={**update.buffers, "seen": torch.tensor(2**40)}),
    lambda update: replace(update, buffers={}),
    lambda update: replace(update, extra={"gradient": {}}),
    lambda update: replace(update, masks={}),
    lambda update: replace(update, masks={name: ~mask for name, mask in (update.masks or {}).items()}),
    lambda update: replace(update, masks={name: mask.float() for name, mask in (update.masks or {}).items()}),
]


@pytest.mark.parametrize("spoil", SPOIL)
def test_an_update_that_is_not_valid_is_a_failure(
    fuzz: ModuleType, target: Any, spoil: Callable[[Update], Update]
) -> None:
    found = (fuzz.decode_update(answer, target.asking_for(answer)) for answer in target.answers)
    update = next(one for one in found if one.masks is not None)
    assert fuzz.fault_of(update, target.task) is None
    assert fuzz.fault_of(spoil(update), target.task) is not None


def test_reasons_are_counted_without_their_numbers(fuzz: ModuleType) -> None:
    assert fuzz.normalised("the mask of fc1.weight keeps 12 weights, its budget is 11") == (
        "the mask of TENSOR keeps # weights, its budget is #"
    )
    assert fuzz.normalised("the payload refers to mask 0012abcd, here is deadbeef") == (
        "the payload refers to mask #, here is #"
    )
    assert fuzz.normalised("fc of params holds -1.5e+09: not a number") == "TENSOR of params holds #: not a number"
    assert fuzz.normalised("the payload begins with b'FD5T', not with b'FDST'") == "the payload begins with …"
    assert fuzz.normalised("the update's values have codec 3, asked for was bfloat16") == (
        "the update's values have codec #, asked for was another"
    )
