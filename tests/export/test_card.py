"""Cards: their code runs, their numbers are the run's, and what is exported is said plainly."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import markdown  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor

import feddst
from feddst.errors import OptionError
from feddst.runtime.loop import Silent

Run = Callable[..., feddst.Result]


def code_of(card: Path) -> str:
    [code] = re.findall(r"```python\n(.*?)```", card.read_text(), re.DOTALL)
    assert isinstance(code, str)
    return code


@pytest.mark.parametrize("format", ["safetensors", "torch", "sparse", "onnx"])
def test_the_code_on_a_card_runs(
    mnist_run: feddst.Result,
    graph: feddst.Exported,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mnist: feddst.Dataset,
    format: Any,
) -> None:
    made = graph if format == "onnx" else feddst.export(str(mnist_run.path), format, tmp_path / "digits.bin")
    monkeypatch.chdir(made.path.parent)
    names: dict[str, Any] = {}
    exec(code_of(made.card), names)
    blank = mnist.inputs(torch.zeros(1, 1, 28, 28, dtype=torch.uint8))
    assert isinstance(blank, Tensor)
    assert torch.allclose(torch.as_tensor(names["images"]), blank)
    assert torch.allclose(torch.as_tensor(names["scores"]), mnist_run.model(blank), atol=1e-5)


def test_the_code_for_a_module_of_ones_own_runs_with_it(
    own_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = feddst.export(own_run.path, "sparse", tmp_path / "own.fdst", model=own_run.model, data=own_run.data)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"Net": own_run.model}
    exec(code_of(made.card), names)
    assert names["scores"].shape == (1, 4)
    without = feddst.export(own_run.path, "sparse", tmp_path / "unknown.fdst")
    exec(code_of(without.card), names)
    assert "inputs must be of the shape, and scaled and normalised, as they were there" in without.card.read_text()
    assert "feddst run" not in without.card.read_text()


def test_names_are_shown_as_they_are_and_never_as_markup(own_run: Any, tmp_path: Path) -> None:
    evil = ("<script>alert(1)</script>", "[x](http://x)\n\n# Best model", "a|b*c*`d`", "\x1b[31mred &amp; @me")
    data = replace(own_run.data, classes=evil, name="_pets_")
    made = feddst.export(own_run.path, "sparse", tmp_path / "own.fdst", model=own_run.model, data=data)
    card = made.card.read_text()
    assert (
        "4 classes, in the order of the scores: "
        r"&lt;script&gt;alert(1)&lt;/script&gt;, \[x\](http\://x) \# Best model, a\|b\*c\*\`d\`, "
        r"\[31mred &amp;amp; \@me."
    ) in card
    assert r"Data: \_pets\_," in card
    assert "<script" not in markdown.markdown(card)


def test_the_numbers_are_the_runs(mnist_run: feddst.Result, tmp_path: Path) -> None:
    made = feddst.export(str(mnist_run.path), "sparse", tmp_path / "digits.fdst", values="q8")
    card, row = made.card.read_text(), mnist_run.rows[-1]
    assert row.accuracy is not None
    assert row.score_worst is not None
    assert row.score_global is not None
    assert "Of the model after round 2, as measured in the run." in card
    assert f"| mean over clients, each on its own test examples | {100 * row.accuracy:.2f} % |" in card
    assert f"| mean over the worst tenth of the clients | {100 * row.score_worst:.2f} % |" in card
    assert f"| all test examples | {100 * row.score_global:.2f} % |" in card
    assert f"| uploaded by all clients | {row.upload_bytes / 2**20:.2f} MiB |" in card
    assert f"{row.flops_sparse:.3g} FLOPs of the sparse network" in card
    assert row.forward_flops_sparse is not None
    forward = f"{row.forward_flops_sparse / 1e6:.2f} MFLOPs for one input; 4.04 if it were dense"
    assert f"| a forward pass of the model | {forward} |" in card
    kept = int(mnist_run.masks["fc1.weight"].sum())
    assert f"| fc1.weight | 50×5120 | 256,000 | {kept:,} | {100 * (1 - kept / 256_000):.1f} % |" in card
    assert "| fc1.bias | 50 | 50 | 50 | dense |" in card
    assert "minus the mean 0.1307, divided by the std 0.3081" in card
    assert f"{made.size:,} bytes; all values take 1,047,360" in card
    assert "Its values were rounded to q8 after training; the accuracies below are of the model before" in card
    assert "Data: mnist, 6 clients, classes partition (2 × 10 images), seed 0." in card
    assert "feddst run --rounds 2 --eval_every 2 --data.clients 6 --data.images_per_class 10 --cohort.size 3" in card
    assert "Exported with `feddst export RUN --format sparse --values q8`" in card
    assert "readjust.every = 10" in card
    assert "lottery." not in card  # nothing to feddst
    assert "not come to its end" not in card


def test_a_card_does_not_call_examples_held_out_test_examples(run_with: Run, tmp_path: Path) -> None:
    data = {"clients": 6, "images_per_class": 10, "held_out": 100}
    card = feddst.export(str(run_with(data=data).path), out=tmp_path / "model").card.read_text()
    assert "| mean over clients, each on its own examples held out | " in card
    assert "| all examples held out | " in card
    assert "test examples" not in card
    assert "classes partition (2 × 10 images), tested on 100 images held out, seed 0." in card


def test_hubs_find_their_front_matter(mnist_run: feddst.Result, own_run: Any, tmp_path: Path) -> None:
    ours = feddst.export(str(mnist_run.path), out=tmp_path / "a").card.read_text()
    assert ours.startswith('---\nlibrary_name: feddst\ntags:\n- "federated-learning"\n- "sparse"\n- "feddst"\n')
    assert "\ndatasets:\n- mnist\nmetrics:\n- accuracy\n---\n" in ours
    assert "datasets:" not in feddst.export(own_run.path, out=tmp_path / "b").card.read_text()


class Stops(Silent):
    """Stops a run after its first round."""

    def stop(self) -> bool:
        return True


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    config = feddst.configure(
        rounds=9, eval_every=5, data={"clients": 4}, cohort={"size": 2}, local={"epochs": 1}, engine={"workers": 1}
    )
    result = feddst.run(config, out=tmp_path / "run", watcher=Stops())
    made = feddst.export(result.path or "")
    assert made.notes == ("the run is not complete: this is its checkpoint after round 1",)
    card = made.card.read_text()
    assert "for 1 round:" in card
    assert "The run had not come to its end: this is its last checkpoint." in card
    assert "It was not measured in the run." in card


def test_lg_fedavg_says_what_is_untrained_and_gives_a_clients_model(run_with: Run, tmp_path: Path) -> None:
    path = run_with(method="lg-fedavg").path
    assert path is not None
    server = feddst.export(path)
    assert (
        "lg-fedavg ends with one model a client. This is the server's, which no client uses as it is"
        in (server.notes[0])
    )
    assert "Its conv1.bias, conv1.weight, conv2.bias, conv2.weight, fc1.bias, fc1.weight are as they were drawn" in (
        server.card.read_text()
    )
    with pytest.raises(OptionError, match=r"client must be one that has trained \(\d.*\), got 99"):
        feddst.export(path, client=99)
    checkpoint = next(
        int(found) for found in re.findall(rb'"client (\d+)/', (path / "checkpoint.safetensors").read_bytes()[:20000])
    )
    own = feddst.export(path, client=checkpoint)
    assert own.path.name == f"client-{checkpoint}.safetensors"
    assert f"This is the one of client {checkpoint}." in own.card.read_text()
    assert "This client's model alone was not measured." in own.card.read_text()
    shared, mine = feddst.load(server.path).state_dict(), feddst.load(own.path).state_dict()
    assert torch.equal(shared["fc2.weight"], mine["fc2.weight"])
    assert not torch.equal(shared["fc1.weight"], mine["fc1.weight"])


def test_lotteryfl_gives_a_clients_network_as_sparse_as_it_is(run_with: Run) -> None:
    path = run_with(method="lotteryfl", lottery={"threshold": 0.0, "prune": 0.6}).path
    assert path is not None
    server = feddst.export(path, "sparse")
    clients = set(re.findall(rb'"client (\d+)/', (path / "checkpoint.safetensors").read_bytes()[:20000]))
    # Those who get no held-out image right do not prune.
    own = min((feddst.export(path, "sparse", client=int(one)) for one in clients), key=lambda found: found.size)
    assert own.size < 0.6 * server.size
    pruned, whole = feddst.load(own.path).state_dict(), feddst.load(server.path).state_dict()
    kept = pruned["fc1.weight"] != 0
    assert kept.float().mean().item() == pytest.approx(0.2, abs=0.01)  # once leaves 40 %, then 20 % are the least
    assert torch.equal(pruned["fc1.weight"][kept], whole["fc1.weight"][kept])
