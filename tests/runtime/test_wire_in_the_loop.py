"""What travels in a run: bytes both ways, rounding, refused updates, and masks that clients still hold."""

import logging
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from feddst.data import Dataset, federate
from feddst.engines import ReferenceEngine, Sink, make_engine
from feddst.errors import ModelError, OptionError, TrainingError
from feddst.models import make_module
from feddst.runtime import RunConfig, run
from feddst.runtime.loop import Silent, play
from feddst.runtime.run import Run
from feddst.studies import CompareConfig, compare
from feddst.wire import ClientResult, ClientTask
from feddst.wire.header import SIZE, Header, Kind, padding, read_header

Configure = Callable[..., RunConfig]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))


class Tampering(ReferenceEngine):
    """An engine some of whose clients send something else than they should; also counts what passes through."""

    def __init__(self, dataset: Dataset, spoil: Callable[[int, bytes], bytes]) -> None:
        super().__init__(network(), dataset, torch.device("cpu"))
        self._spoil = spoil
        self.up = self.down = 0
        self.headers: dict[Kind, list[Header]] = {Kind.BROADCAST: [], Kind.UPDATE: []}

    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        self.down += sum(len(task.message.payload) for task in tasks)
        self.headers[Kind.BROADCAST] += [read_header(memoryview(task.message.payload))[0] for task in tasks]
        for index, task in enumerate(tasks):
            sink.result(index, self._tampered(index, self.answer(task)))

    def _tampered(self, index: int, result: ClientResult) -> ClientResult:
        assert result.payload is not None
        self.headers[Kind.UPDATE].append(read_header(memoryview(result.payload))[0])
        payload = self._spoil(index, result.payload)
        self.up += len(payload)
        return replace(result, payload=payload)


def played(config: RunConfig, data: Dataset, spoil: Callable[[int, bytes], bytes]) -> tuple[Run, Tampering]:
    one = Run(config, federate(config.data, config.seed, data), make_module(network, config.seed))
    engine = Tampering(data, spoil)
    play([one], engine, Silent())
    return one, engine


def untouched(place: int, payload: bytes) -> bytes:
    return payload


def test_what_is_counted_is_what_was_sent(small_config: Configure, small_data: Dataset) -> None:
    one, engine = played(small_config(), small_data, untouched)
    assert (one.rows[-1].upload_bytes, one.rows[-1].download_bytes) == (engine.up, engine.down)
    assert 0 < one.rows[-1].upload_mask_bytes < engine.up
    assert 0 < one.rows[-1].download_mask_bytes < engine.down
    assert sum(row.refused for row in one.rows) == 0


def test_bytes_are_headers_masks_values_buffers_and_padding(small_config: Configure, small_data: Dataset) -> None:
    one, engine = played(small_config(), small_data, untouched)
    last = one.rows[-1]
    found = {
        Kind.UPDATE: (last.upload_bytes, last.upload_header_bytes, last.upload_mask_bytes),
        Kind.BROADCAST: (last.download_bytes, last.download_header_bytes, last.download_mask_bytes),
    }
    for kind, (everything, headers, masks) in found.items():
        sent = engine.headers[kind]
        values, zeros = sum(each.value_bytes for each in sent), sum(padding(each.mask_bytes) for each in sent)
        buffers = len(sent) * (12 * 4 + 12 * 4 + 8)  # the norm's means and variances, and its counter
        assert len(sent) == 6 * 4
        assert headers == len(sent) * SIZE
        assert everything == headers + masks + values + buffers + zeros


def test_stragglers_that_are_left_out_have_been_sent_the_model_all_the_same(
    small_config: Configure, small_data: Dataset
) -> None:
    config = small_config(method="fedavgm", cohort__stragglers=0.5)
    one, engine = played(config, small_data, untouched)
    # Two of four clients a round are left out; every dense payload is alike.
    assert one.rows[-1].download_bytes == 2 * engine.down


def test_a_refused_update_is_counted_and_named_and_the_round_goes_on(
    small_config: Configure, small_data: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    def second_is_noise(place: int, payload: bytes) -> bytes:
        return b"\x99" * 500 if place == 1 else payload

    one, engine = played(small_config(), small_data, second_is_noise)
    assert [(row.clients, row.refused) for row in one.rows] == [(3, 1)] * 6
    assert one.summary().refused == 6
    assert one.rows[-1].upload_bytes == engine.up
    assert one.rows[-1].upload_header_bytes == 6 * 3 * SIZE
    assert one.rows[-1].download_header_bytes == 6 * 4 * SIZE
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 6
    assert lines[0].startswith("round 1: the update of client ")
    assert "begins with" in lines[0]


def test_refusing_an_update_is_as_if_it_had_not_come(small_config: Configure, small_data: Dataset) -> None:
    one, _ = played(small_config(rounds=1), small_data, lambda place, payload: payload[:-1] if place else payload)
    [alone] = [row.clients for row in one.rows]
    assert alone == 1
    assert all(torch.isfinite(value).all() for value in one.state.params.values())


def test_too_many_refusals_stop_the_run_and_say_why(small_config: Configure, small_data: Dataset) -> None:
    with pytest.raises(
        TrainingError,
        match=r"round 3 has 2 updates, fewer than min_clients \(3\): .* before it; client \d+: the payload",
    ):
        played(small_config(min_clients=3), small_data, lambda place, payload: payload if place < 2 else b"")


def test_a_round_of_stragglers_changes_nothing(
    small_config: Configure, small_data: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = played(small_config(rounds=2, cohort__stragglers=1.0), small_data, untouched)
    begun = Run(one.config, one.federation, make_module(network, 0))
    assert all(torch.equal(value, begun.state.params[name]) for name, value in one.state.params.items())
    assert [row.clients for row in one.rows] == [0, 0]
    assert "round 1 has 0 updates, fewer than min_clients (1): the model stays as it is" in caplog.text


@pytest.mark.parametrize("kind", ["reference", "stacked"])
def test_clients_keep_nothing_of_rounds_that_change_nothing(
    small_config: Configure, small_data: Dataset, kind: str
) -> None:
    """Two of four clients are stragglers in every round, and three are needed."""
    feedback = {"wire__values": "top8", "wire__feedback": True, "cohort__stragglers": 0.5, "engine__kind": kind}
    kept = []
    for least in (2, 3):
        config = small_config(rounds=2, min_clients=least, **feedback)
        one = Run(config, federate(config.data, config.seed, small_data), make_module(network, config.seed))
        with closing(make_engine(config.engine, network(), small_data)) as engine:
            play([one], engine, Silent())
        kept.append(one.clients)
    assert all(state.feedback for state in kept[0].values())
    assert (bool(kept[0]), kept[1]) == (True, {})


def test_a_client_whose_update_is_refused_keeps_what_it_had(small_config: Configure, small_data: Dataset) -> None:
    asked = {"cohort__size": 8, "wire__values": "top8", "wire__feedback": True}
    before, _ = played(small_config(rounds=1, **asked), small_data, untouched)
    seen: list[int] = []

    def last_is_noise(place: int, payload: bytes) -> bytes:
        seen.append(place)
        return payload if len(seen) < 16 else b""

    after, _ = played(small_config(rounds=2, **asked), small_data, last_is_noise)
    same = [
        all(torch.equal(value, after.clients[client].feedback[name]) for name, value in state.feedback.items())
        for client, state in before.clients.items()
    ]
    assert sorted(same) == [False] * 7 + [True]


@pytest.mark.parametrize("style", ["difference", "positions", "bitmap"])
def test_lossless_settings_give_the_same_model(small_config: Configure, small_data: Dataset, style: str) -> None:
    plain = run(small_config(), model=network, data=small_data)
    other = run(small_config(wire__mask=style, wire__packing="deflate"), model=network, data=small_data)
    assert all(torch.equal(plain.model.state_dict()[name], v) for name, v in other.model.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"wire__values": "bfloat16"}, 0.8),
        ({"wire__values": "q4"}, 0.7),
        ({"wire__values": "q2", "wire__packing": "deflate"}, 0.75),
        ({"wire__values": "top8"}, 0.65),
    ],
)
def test_rounded_updates_are_fewer_bytes_and_still_learn(
    small_config: Configure, small_data: Dataset, changes: dict[str, str], share: float
) -> None:
    plain = run(small_config(rounds=12), model=network, data=small_data)
    rounded = run(small_config(rounds=12, **changes), model=network, data=small_data)
    assert rounded.rows[-1].upload_bytes < share * plain.rows[-1].upload_bytes
    assert rounded.rows[-1].download_bytes == pytest.approx(plain.rows[-1].download_bytes, rel=0.05)
    assert rounded.summary.best > 0.6
    assert plain.summary.best > 0.6


@pytest.mark.parametrize("codec", ["bfloat16", "q8", "q4"])
def test_a_rounded_broadcast_does_not_round_the_servers_own_model(
    small_config: Configure, small_data: Dataset, codec: str
) -> None:
    """With a learning rate so small that nothing is learnt, the model stays what it was."""
    quiet = {"local__lr": 1e-12, "local__l2": 0.0, "readjust__alpha": 0.0}
    plain = run(small_config(**quiet), model=network, data=small_data)
    rounded = run(small_config(wire__download=codec, **quiet), model=network, data=small_data)
    before, after = dict(plain.model.named_parameters()), dict(rounded.model.named_parameters())
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=1e-5, atol=1e-6)
    assert rounded.rows[-1].download_bytes < 0.9 * plain.rows[-1].download_bytes


def test_clients_that_hold_a_mask_are_sent_differences(small_config: Configure, small_data: Dataset) -> None:
    remembered = run(small_config(), model=network, data=small_data)
    forgotten = run(small_config(wire__remember=0), model=network, data=small_data)
    assert remembered.rows[-1].download_mask_bytes < forgotten.rows[-1].download_mask_bytes
    assert remembered.rows[-1].upload_bytes == forgotten.rows[-1].upload_bytes
    assert [row.accuracy for row in remembered.rows] == [row.accuracy for row in forgotten.rows]


def test_a_cap_means_measured_bytes_or_the_formula_as_accounting_says(
    small_config: Configure, small_data: Dataset
) -> None:
    free = run(small_config(wire__values="q4"), model=network, data=small_data)
    half = free.rows[2].upload_bytes / 2**30
    measured = run(small_config(wire__values="q4", cap_gib=half, rounds=0), model=network, data=small_data)
    by_formula = run(
        small_config(wire__values="q4", cap_gib=half, rounds=0, accounting="paper"), model=network, data=small_data
    )
    assert measured.rows[-1].upload_bytes <= half * 2**30
    assert by_formula.rows[-1].upload_bits <= half * 2**33
    # The formula knows no headers, which are most of what so small a network sends.
    assert len(measured.rows) <= 3 < len(by_formula.rows)
    assert measured.summary.stopped_by == by_formula.summary.stopped_by == "cap"


def test_wire_settings_of_one_method_stand_side_by_side(
    small_config: Configure, small_data: Dataset, tmp_path: Path
) -> None:
    methods = ("feddst", "feddst:wire.values=q4", "feddst:wire.values=q4:wire.packing=deflate")
    made = compare(
        CompareConfig(methods=methods, base=small_config()), out=tmp_path / "c", model=network, data=small_data
    )
    sent = [made.of(label)[0].rows[-1].upload_bytes for label in methods]
    assert sent[0] > sent[1] > sent[2]
    text = (tmp_path / "c" / "comparison.md").read_text()
    assert "MiB up" in text
    assert "feddst:wire.values=q4:wire.packing=deflate" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wire__values": "q3"}, r"wire\.values must be one of float32, .*, got 'q3'"),
        ({"wire__download": "int8"}, r"wire\.download must be one of float32, .*, got 'int8'"),
        ({"min_clients": 5}, r"min_clients must be at most cohort\.size \(4\), got 5"),
    ],
)
def test_bad_options_are_named(small_config: Configure, changes: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        small_config(**changes).check()


def test_a_client_cannot_claim_more_weight_than_it_has(small_config: Configure, small_data: Dataset) -> None:
    def claim(place: int, payload: bytes) -> bytes:
        raised = payload[:16] + (12).to_bytes(4, "little") + payload[20:44]
        return raised + zlib.crc32(payload[48:], zlib.crc32(raised)).to_bytes(4, "little") + payload[48:]

    # Twelve images in minibatches of five are three minibatches.
    one, _ = played(small_config(rounds=1), small_data, claim)
    assert one.rows[0].refused == 0
    with pytest.raises(TrainingError, match="claims weight 12, allowed is 1 to 3"):
        played(small_config(rounds=1, local__weigh_by="batches"), small_data, claim)


def test_a_model_that_cannot_be_sent_is_refused_before_anything_is_written(
    small_config: Configure, small_data: Dataset, tmp_path: Path
) -> None:
    class Double(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(36, 4).double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.inner(x.flatten(1).double()).float()
            return out

    with pytest.raises(ModelError, match=r"parameter inner\.weight is float64"):
        run(small_config(), model=Double, data=small_data, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()
