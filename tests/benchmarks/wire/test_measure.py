"""The wire bench on the smallest network: sizes and errors, for timings depend on the machine."""

import json
import math

import numpy as np
import pytest

from benchmarks.wire.entropy import choice_bits, entropy, mask_bits
from benchmarks.wire.measure import WireBench, WireRecord, measure
from benchmarks.wire.tables import markdown, tables
from benchmarks.wire.targets import verdicts
from benchmarks.wire.updates import exchange
from feddst.errors import OptionError
from feddst.wire import general_codecs


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def record(told: list[str]) -> WireRecord:
    bench = WireBench(networks=("mnist-cnn",), levels=(0.95,), alphas=(0.01, 0.05), repeats=1)
    return measure(bench, told.append)


def test_every_codec_has_its_rows(record: WireRecord, told: list[str]) -> None:
    assert told == ["mnist-cnn, S = 0.95", "mnist-cnn, the cost of a call"]
    rows = {(row.codec, row.packing) for row in record.values}
    assert rows == {(name, "plain") for name in general_codecs()} | {(name, "deflate") for name in ("q8", "q4", "q2")}
    assert len(record.values) == 12
    assert [row.codec for row in record.calls] == ["float32", "q4"]
    assert {row.values for row in record.values} == {record.copies[0].values} == {13088 + 90}


def test_sizes(record: WireRecord) -> None:
    least = {"float32": 32, "bfloat16": 16, "float16": 16, "q8": 8.25, "q4": 4.25, "q2": 2.25}
    least |= {"top8": 6 / 8, "top16": 7 / 16, "top32": 8 / 32}
    for row in record.values:
        sizes = row.sizes
        assert sizes.payload == sizes.values + sizes.mask + sizes.buffers + sizes.framing
        assert (sizes.mask, sizes.buffers, sizes.framing) == (0, 0, 48)
        if row.packing == "plain":
            header_and_scales = 8 * (48 + 2 * 8) / row.values
            assert least[row.codec] <= row.bits < 1.04 * least[row.codec] + header_and_scales
            assert row.bound / row.values <= row.bits
        else:
            assert row.bits < least[row.codec]


def test_errors_are_those_expected(record: WireRecord) -> None:
    for row in record.values:
        if row.error.expected is None:
            assert (row.error.measured == 0) == (row.codec == "float32")
        else:
            assert row.error.measured == pytest.approx(row.error.expected, rel=0.1)
        assert row.error.change > 0


def test_masks_are_near_their_entropy(record: WireRecord) -> None:
    for row in record.differences:
        assert row.leaving == row.entering > 0
        assert row.leaving == pytest.approx(row.alpha * row.kept, rel=0.1)
        assert row.code == "difference"
        assert 0.9 < row.ratio < 1.1
    [whole] = record.masks
    assert (whole.weights, whole.kept) == (261750, 13088)
    assert whole.bitmap == math.ceil((261750 + 8) / 8)
    assert 1 < whole.ratio < 1.03


def test_the_record_is_json_with_where_it_was_made(record: WireRecord) -> None:
    about = json.loads(json.dumps(record.as_json("python -m benchmarks.wire")))
    assert about["command"] == "python -m benchmarks.wire"
    assert set(about["machine"]) == {"cpu", "cores", "system", "python", "torch", "numpy", "zlib"}
    assert {name: len(part) for name, part in about.items() if isinstance(part, list)} == {
        "values": 12,
        "copies": 1,
        "calls": 2,
        "differences": 2,
        "masks": 1,
    }
    first = about["values"][0]
    assert first["encode_mb_s"] == pytest.approx(4e-6 * first["values"] / first["encode"]["median"])


def test_the_tables_hold_every_row(record: WireRecord) -> None:
    found = {table.title: len(table.rows) - 1 for table in tables(record)}
    assert found == {
        "Targets": 6,
        "Values": 12 + 2,
        "The cost of a call": 2,
        "Errors": 8,
        "Mask differences": 2,
        "Whole masks": 1,
    }
    page = markdown(record, record.as_json("python -m benchmarks.wire"))
    for table in tables(record):
        assert {len(row) for row in table.rows} == {len(table.rows[0])}
        assert f"\n## {table.title}\n" in page
        assert page.count("\n| mnist-cnn |") == 12 + 2 + 2 + 8 + 2 + 1


def test_targets_are_counted(record: WireRecord) -> None:
    found = verdicts(record)
    assert [(verdict.met, verdict.rows) for verdict in found[:2]] == [(2, 2), (12, 12)]
    assert [verdict.rows for verdict in found[2:]] == [1, 1, 1, 1]


def test_an_exchange_follows_from_its_seed() -> None:
    one, same, other = (exchange("mnist-cnn", 0.99, seed) for seed in (1, 1, 2))
    assert one.update.params["fc1.weight"].equal(same.update.params["fc1.weight"])
    assert not one.update.params["fc1.weight"].equal(other.update.params["fc1.weight"])
    assert one.update.masks is None
    assert one.dense["fc1.weight"].count_nonzero() <= one.sent["fc1.weight"].sum()


def test_entropies() -> None:
    assert choice_bits(4, 2) == pytest.approx(math.log2(6))
    assert choice_bits(10, 0) == 0
    assert entropy(np.array([1, 1, 0, 2])) == pytest.approx(1.5)
    assert mask_bits(8, 4) == pytest.approx(8)
    assert mask_bits(8, 0) == 0


@pytest.mark.parametrize(
    ("bench", "message"),
    [
        (WireBench(networks=()), "networks must not be empty"),
        (WireBench(levels=(0.5, 0.5)), "levels names 0.5 twice"),
    ],
)
def test_what_makes_no_sense_is_refused(bench: WireBench, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}$"):
        bench.check()
