import json
import math
from collections.abc import Callable
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from feddst.data import Dataset
from feddst.runtime import toml
from feddst.runtime.storage import RunDirectory

Call = Callable[..., Any]


def test_a_run_says_what_it_does_and_what_came_of_it(feddst: Call, tmp_path: Path, small: str) -> None:
    outcome = feddst(f"run --rounds 3 {small} --eval_every 2".replace("--eval_every 1 ", ""))
    assert outcome.code == 0
    first, network, *evaluations = outcome.err.splitlines()
    assert first == (
        "feddst, seed 0, on mnist (classes), 4 clients, 2 a round, one client at a time; "
        "writing to runs/feddst-mnist-seed0"
    )
    assert "weights and biases, 20.0 % of the prunable ones active, 20." in network
    assert [line.split(":")[0] for line in evaluations] == ["round 2", "round 3"]
    summary = json.loads((tmp_path / "runs/feddst-mnist-seed0/summary.json").read_text())
    assert f"best {100 * summary['best']:.2f} %" in outcome.out
    assert f"final {100 * summary['final']:.2f} %" in outcome.out
    measured, formula = summary["upload_bytes"] / 2**10, 2**20 * summary["upload_gib"]
    assert f"upload    {measured:.1f} KiB measured, {formula:.1f} KiB by the paper's formula" in outcome.out
    assert f"download  {summary['download_bytes'] / 2**10:.1f} KiB measured" in outcome.out
    sparse, dense = summary["forward_flops_sparse"], summary["forward_flops_dense"]
    # 14×14 → conv 5×5 → 10 → pool → 8 → conv → 4 → pool → 2; then 80→50→4, two FLOPs each multiply-add.
    assert dense == 2 * (10 * 10 * 250 + 4 * 4 * 5000 + 80 * 50 + 50 * 4)
    assert f"forward   {sparse / 1e3:.2f} kFLOPs for one input; {dense / 1e3:.2f} if it were dense\n" in outcome.out
    *_, results, report = outcome.out.splitlines()
    assert results == "results   runs/feddst-mnist-seed0"
    assert report.startswith("report    ")
    assert report.endswith(" report runs/feddst-mnist-seed0")


def test_a_second_run_gets_a_directory_of_its_own(feddst: Call, tmp_path: Path, small: str) -> None:
    for expected in ("runs/fedavgm-mnist-seed7", "runs/fedavgm-mnist-seed7-2", "runs/fedavgm-mnist-seed7-3"):
        outcome = feddst(f"run --method fedavgm --seed 7 --rounds 1 {small}")
        assert f"\nresults   {expected}\n" in outcome.out
        assert (tmp_path / expected / "summary.json").is_file()


def test_each_source_of_options_overrules_the_one_before(feddst: Call, tmp_path: Path, small: str) -> None:
    (tmp_path / "mine.toml").write_text("readjust.every = 7\n[sparsity]\nlevel = 0.6\n")
    given = f"{small} --rounds 1 --sparsity.level 0.7 --out here"
    outcome = feddst(f"run --preset table1-feddst-published --config mine.toml {given}")
    assert outcome.code == 0
    stored = toml.read(tmp_path / "here" / "config.toml")
    assert stored["local.batch"] == 32  # the default
    assert stored["model.head"] == "softmax"  # the preset's
    assert stored["readjust.every"] == 7  # the file's, over the preset's 10
    assert stored["sparsity.level"] == 0.7  # typed, over the file's 0.6 and the preset's 0.8


def test_the_config_of_a_run_can_be_run_again(feddst: Call, tmp_path: Path, small: str) -> None:
    assert feddst(f"run --method fedavgm --rounds 1 {small} --out first").code == 0
    assert feddst("run --config first/config.toml --out second").code == 0
    first, second = (tmp_path / name / "config.toml" for name in ("first", "second"))
    assert first.read_text() == second.read_text()


def test_a_file_may_not_ask_for_what_has_no_effect(feddst: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('method = "fedavgm"\nsparsity.level = 0.6\n')
    outcome = feddst("run --config mine.toml")
    assert (outcome.code, outcome.err) == (2, "feddst: sparsity.level has no effect on fedavgm\n")


def test_a_complete_run_is_not_run_again(feddst: Call, tmp_path: Path, small: str) -> None:
    feddst(f"run --rounds 2 {small} --out here")
    files = {path: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    outcome = feddst("run --resume --out here")
    assert outcome.code == 0
    assert outcome.err.startswith("the run in here is complete")
    assert "after 2 rounds" in outcome.out
    assert {path: path.read_bytes() for path in (tmp_path / "here").iterdir()} == files


def test_a_complete_run_goes_on_with_more_rounds(feddst: Call, tmp_path: Path, small: str) -> None:
    feddst(f"run --rounds 2 {small} --out here")
    outcome = feddst("run --resume --out here --rounds 3")
    assert outcome.code == 0
    assert "going on after round 2" in outcome.err
    rounds = [json.loads(line)["round"] for line in (tmp_path / "here/metrics.jsonl").read_text().splitlines()]
    assert rounds == [1, 2, 3]


def test_a_run_of_an_earlier_version_goes_on_with_the_engine_it_had(
    feddst: Call, tmp_path: Path, small: str, unseal_run: Callable[[Path], RunDirectory]
) -> None:
    for name, rounds in {"straight": 3, "here": 2}.items():
        assert feddst(f"run --rounds {rounds} {small} --engine.kind reference --out {name}").code == 0
    config = unseal_run(tmp_path / "here").config
    config.write_text(config.read_text().replace('engine.kind = "reference"\n', ""))
    assert "engine.kind" not in toml.read(config)
    refused = feddst("run --resume --out here --rounds 3 --engine.kind native")
    assert refused.err == "feddst: here was begun with another config: engine.kind was 'reference', now 'native'\n"
    outcome = feddst("run --resume --out here --rounds 3")
    assert outcome.code == 0
    assert "going on after round 2" in outcome.err
    assert toml.read(config)["engine.kind"] == "reference"
    ends = [load_file(tmp_path / name / "checkpoint.safetensors") for name in ("straight", "here")]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


def test_a_run_cannot_be_resumed_with_another_config(feddst: Call, tmp_path: Path, small: str) -> None:
    feddst(f"run --rounds 2 {small} --out here")
    files = {path: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    outcome = feddst("run --resume --out here --local.lr 0.5 --rounds 9")
    assert outcome.code == 2
    assert outcome.err == "feddst: here was begun with another config: local.lr was 0.01, now 0.5\n"
    assert {path: path.read_bytes() for path in (tmp_path / "here").iterdir()} == files


def test_a_run_that_diverges_says_who_and_when_and_keeps_its_last_checkpoint(
    feddst: Call, tmp_path: Path, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from feddst.engines.native.client import NativeClient

    usual = NativeClient.epochs

    def diverge_from_round_three_on(client: NativeClient, epochs: Any) -> list[float]:
        losses = usual(client, epochs)
        return [*losses[:-1], math.nan] if client.task.round >= 3 else losses

    monkeypatch.setattr(NativeClient, "epochs", diverge_from_round_three_on)
    outcome = feddst(f"run --rounds 5 {small} --out here")
    assert outcome.code == 2
    last = outcome.err.splitlines()[-1]
    assert last.startswith("feddst: round 5: 2 of the 2 clients that answered diverged")
    assert "diverged in round 5" in last
    assert (tmp_path / "here/checkpoint.safetensors").is_file()
    monkeypatch.setattr(NativeClient, "epochs", usual)
    again = feddst("run --resume --out here")
    assert again.code == 0
    assert "going on after round 4" in again.err
    assert "round 7: " in again.err  # rounds 3 and 4 came to nothing, and do not count


def test_a_learning_rate_far_too_large_says_who_and_when(feddst: Call, small: str) -> None:
    outcome = feddst(f"run --rounds 1 {small} --local.lr 1e30")
    assert outcome.code == 2
    last = outcome.err.splitlines()[-1]
    assert last.startswith(
        "feddst: round 1: 2 of the 2 clients that answered diverged: the round came to nothing; client "
    )
    assert "too large to average" in last


def test_a_warning_is_one_line(feddst: Call, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise PicklingError("Net is defined in a script")

    monkeypatch.setattr("feddst.engines.select.ProcessEngine", refuse)
    outcome = feddst(
        f"run --rounds 1 {small} --engine.kind reference --engine.workers 2".replace("--engine.workers 1 ", "")
    )
    assert outcome.code == 0
    warnings = [line for line in outcome.err.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("feddst: warning: the model, the data or something registered cannot be rebuilt in")
    assert "engine.workers to 1" in warnings[0]


def test_a_run_that_began_in_python_is_refused_before_anything_is_said_of_its_data(
    feddst: Call, tmp_path: Path, small: str, tiny_mnist: Dataset
) -> None:
    assert feddst(f"run --rounds 2 {small} --out here").code == 0
    tiny_mnist.train_images.neg_()
    refused = feddst("run --resume --out here --rounds 3")
    assert refused.code == 2
    assert refused.err.startswith("feddst: here/checkpoint.safetensors was written with another model or other data")


def test_a_bug_is_not_hidden(feddst: Call, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: nn.Module, *inputs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(nn.Linear, "forward", broken)
    with pytest.raises(ZeroDivisionError):
        feddst(f"run --rounds 1 {small}")
