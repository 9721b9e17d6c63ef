"""`scripts/compare_commits.py`: what differs between two commits' weights is found and named."""

import copy
import json
import runpy
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from feddst.runtime.tensorfile import pack

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts/compare_commits.py"))
ROW = {"round": 1, "accuracy": 0.5, "accuracy_personal": None, "upload_bytes": 10, "download_bytes": 20}
DIGEST: dict[str, Any] = {
    "machine": dict.fromkeys(SCRIPT["ALIKE"], "one"),
    "cases": {
        "a": {"tensors": {"params/w": "F32 2 00", "client 3/w": "F32 2 01"}, "rows": [{**ROW}, {**ROW, "round": 2}]},
        "b": {"tensors": {"params/w": "F32 2 00"}, "rows": [{**ROW}]},
    },
}


def file(weights: torch.Tensor, **others: torch.Tensor) -> bytes:
    about = {"shared": [["feedback 1/w", "feedback 4/w"]]}
    tensors = {"params/w": weights, "shared/0": torch.ones(3, dtype=torch.uint8), "bitmap/77": torch.ones(2), **others}
    return pack(tensors, {"feddst": json.dumps(about)})


def test_tensors_have_their_dtype_shape_and_bytes_and_what_clients_share_is_there_for_each() -> None:
    found = SCRIPT["checkpoint_tensors"](file(torch.zeros(2, 3)))
    assert found.keys() == {"params/w", "feedback 1/w", "feedback 4/w"}
    assert found["params/w"].startswith("F32 2x3 ")
    assert found["feedback 1/w"] == found["feedback 4/w"]


@pytest.mark.parametrize(
    "other",
    [
        torch.full((2, 3), -0.0),  # equal as numbers
        torch.zeros(3, 2),
        torch.zeros(2, 3, dtype=torch.int32),  # the same bytes
        torch.tensor([[0, 0, 0], [0, 0, struct.unpack("<f", b"\x01\0\0\0")[0]]]),  # one bit
    ],
    ids=["sign of zero", "shape", "dtype", "one bit"],
)
def test_tensors_differ_by_any_bit(other: torch.Tensor) -> None:
    digest = SCRIPT["checkpoint_tensors"]
    assert digest(file(torch.zeros(2, 3)))["params/w"] != digest(file(other))["params/w"]


def test_digests_that_are_alike_are_the_same() -> None:
    found = SCRIPT["compare"](DIGEST, copy.deepcopy(DIGEST))
    assert found.same
    assert found.differences == {"a": [], "b": []}
    assert SCRIPT["table"](found).endswith("0 of 2 cases differ")


def test_digests_without_a_case_show_nothing() -> None:
    assert not SCRIPT["compare"]({**DIGEST, "cases": {}}, {**DIGEST, "cases": {}}).same


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a weight": (lambda a: a["tensors"].update({"params/w": "F32 2 ff"}), "params/w: F32 2 00, now F32 2 ff"),
    "a client's": (lambda a: a["tensors"].pop("client 3/w"), "client 3/w: F32 2 01, now absent"),
    "one more": (lambda a: a["tensors"].update({"extra/m": "F32 2 0"}), "extra/m: absent, now F32 2 0"),
    "bytes": (lambda a: a["rows"][1].update(upload_bytes=11), "round 2 upload_bytes: 10, now 11"),
    "accuracy": (lambda a: a["rows"][0].update(accuracy=0.25), "round 1 accuracy: 0.5, now 0.25"),
    "a round less": (lambda a: a["rows"].pop(), "rounds: 2, now 1"),
}


@pytest.mark.parametrize(("edit", "words"), EDITS.values(), ids=EDITS)
def test_a_difference_is_found_and_named(edit: Callable[[dict[str, Any]], Any], words: str) -> None:
    other = copy.deepcopy(DIGEST)
    edit(other["cases"]["a"])
    found = SCRIPT["compare"](DIGEST, other)
    assert not found.same
    assert found.differences == {"a": [words], "b": []}
    assert SCRIPT["table"](found).splitlines() == ["a  differs", f"  {words}", "b  same", "1 of 2 cases differ"]


def test_a_case_that_failed_or_is_missing_is_not_the_same() -> None:
    failed = {**DIGEST, "cases": {**DIGEST["cases"], "a": {"failed": "exit status 2"}}}
    assert SCRIPT["compare"](failed, failed).differences["a"] == [
        "failed in the first: exit status 2",
        "failed in the second: exit status 2",
    ]
    fewer = {**DIGEST, "cases": {"b": DIGEST["cases"]["b"]}}
    assert SCRIPT["compare"](DIGEST, fewer).differences["a"] == ["only the first digest has this case"]


def test_digests_of_two_machines_are_not_compared(tmp_path: Path) -> None:
    other = {**DIGEST, "machine": {**DIGEST["machine"], "torch": "another"}}
    with pytest.raises(SCRIPT["CaseError"], match=r"another torch each, one and another"):
        SCRIPT["compare"](DIGEST, other)


def test_the_exit_status_says_whether_they_differ_and_the_record_is_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = {"commit": "c", "seconds": 1.0}
    one, two, out = (tmp_path / name for name in ("one.json", "two.json", "out.json"))
    other = copy.deepcopy(DIGEST)
    other["cases"]["b"]["rows"][0]["download_bytes"] = 0
    SCRIPT["write"](one, {**DIGEST, **head})
    SCRIPT["write"](two, {**other, **head})
    for second, status in ((one, 0), (two, 1)):
        monkeypatch.setattr("sys.argv", ["compare_commits.py", "compare", str(one), str(second), "--out", str(out)])
        assert SCRIPT["main"]() == status
        record = json.loads(out.read_text())
        assert record["same"] is (status == 0)
    assert record["cases"] == {"a": [], "b": ["round 1 download_bytes: 20, now 0"]}


def test_a_resumed_case_gives_the_digest_of_one_that_was_not_stopped() -> None:
    options = {"method": "lotteryfl", "lottery.threshold": 0.0}
    straight, resumed, refused = (
        SCRIPT["Case"]("straight", options, stops=(2,)),
        SCRIPT["Case"]("resumed", options, stops=(1, 2)),
        SCRIPT["Case"]("refused", {"cohort.size": 7}),
    )
    found = SCRIPT["play"](SCRIPT["Package"](ROOT / "src", ""), [straight, resumed, refused])
    assert [row["round"] for row in found["straight"]["rows"]] == [1, 2]
    groups = {name.partition("/")[0].partition(" ")[0] for name in found["straight"]["tensors"]}
    assert groups == {"params", "extra", "client"}
    assert found["straight"]["tensors"] == found["resumed"]["tensors"]
    assert "cohort.size must be at most data.clients (6), got 7" in found["refused"]["failed"]


def test_names_of_cases_are_distinct() -> None:
    names = [case.name for case in SCRIPT["cases"]()]
    assert len(set(names)) == len(names)


def test_the_record_says_that_all_is_the_same() -> None:
    record = json.loads((ROOT / "results/same-bits/comparison.json").read_text())
    base = json.loads((ROOT / "results/same-bits/base.json").read_text())
    assert record["base"] == base["commit"]
    assert record["cases"].keys() == base["cases"].keys()
    assert record["same"] is not any(record["cases"].values())
    assert record["same"]
