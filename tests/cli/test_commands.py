"""`compare` and `data show` from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]


def test_a_comparison_ends_with_table_picture_and_sentence(feddst: Call, tmp_path: Path, small: str) -> None:
    words = f"compare --methods fedavgm,feddst --rounds 2 --caps 0.001 {small} --out here"
    first = feddst(words)
    assert first.code == 0
    assert first.err.splitlines()[0].startswith("2 runs on mnist (classes), 4 clients")
    lines = first.out.splitlines()
    assert any(line.startswith("fedavgm ") for line in lines)
    place = lines.index("picture  here/accuracy.png")
    assert lines[place + 1].startswith("report   ")
    assert lines[place + 1].endswith(" report here")
    assert lines[-1].startswith("At 0.001 GiB of upload, measured, feddst reaches ")
    assert lines[-1].endswith("(one seed).")
    assert {path.name for path in (tmp_path / "here").iterdir()} == {
        "accuracy.png",
        "comparison.json",
        "comparison.md",
        "fedavgm-seed0",
        "feddst-seed0",
    }
    second = feddst(words)
    assert second.out == first.out
    assert second.err.count("finished already") == 2


def test_with_caps_a_run_ends_at_the_largest(feddst: Call, tmp_path: Path, small: str) -> None:
    assert feddst(f"compare --methods feddst --caps 0.0001,0.0002 {small} --out here").code == 0
    base = json.loads((tmp_path / "here/comparison.json").read_text())["config"]["base"]
    assert (base["rounds"], base["cap_gib"]) == (0, 0.0002)
    summary = json.loads((tmp_path / "here/feddst-seed0/summary.json").read_text())
    assert summary["stopped_by"] == "cap"
    assert 0.0001 < summary["upload_gib"] <= 0.0002


def test_the_command_in_the_report_gives_the_same_comparison(feddst: Call, tmp_path: Path, small: str) -> None:
    assert feddst(f"compare --methods feddst --rounds 1 {small} --out here").code == 0
    report = json.loads((tmp_path / "here/comparison.json").read_text())
    assert feddst(report["command"].removeprefix("feddst ") + " --out there").code == 0
    again = json.loads((tmp_path / "there/comparison.json").read_text())
    assert again == report


def test_another_comparison_does_not_take_over_a_directory(feddst: Call, tmp_path: Path, small: str) -> None:
    feddst(f"compare --methods feddst --rounds 1 {small} --out here")
    before = (tmp_path / "here/comparison.json").read_bytes()
    outcome = feddst(f"compare --methods fedavgm --rounds 1 {small} --out here --local.lr 0.5")
    assert outcome.code == 2
    assert outcome.err == "feddst: here holds a comparison with another config: local.lr was 0.01, now 0.5\n"
    assert (tmp_path / "here/comparison.json").read_bytes() == before


def test_data_show_prints_a_table_and_draws_a_picture(feddst: Call, tmp_path: Path) -> None:
    outcome = feddst("data show --data.clients 25 --data.images_per_class 2 --seed 3 --out clients.png")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "mnist, 25 clients, classes partition (2 × 2 images), seed 3"
    assert lines[1].split()[0] == "client"
    assert lines[2].split()[:2] == ["0", "4"]  # client 0 holds 2 × 2 images
    assert lines[-1].startswith("5 more")  # 20 of 25 are shown
    assert (tmp_path / "clients.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_without_a_name_are_numbered(feddst: Call, tmp_path: Path) -> None:
    for name in ("mnist-iid-clients.png", "mnist-iid-clients-2.png"):
        outcome = feddst("data show --data.partition iid --data.clients 3 --data.images_per_class 2")
        assert outcome.err == f"picture: runs/{name}\n"
        assert (tmp_path / "runs" / name).is_file()
