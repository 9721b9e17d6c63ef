"""Table, figures and record, from a record made by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from feddst.errors import CheckpointError
from feddst.studies.reproduce.figures import draw_figures
from feddst.studies.reproduce.paper import PAPER
from feddst.studies.reproduce.record import Record, earlier, load_record, save_record
from feddst.studies.reproduce.table import (
    caption,
    differences,
    markdown,
    notes,
    partial,
    sentences,
    short_table,
    table,
)

RECORDS = sorted((Path(__file__).parents[3] / "results").glob("*/record.json"))


def test_each_cap_has_what_was_found_what_the_paper_says_and_how_far_that_is(by_hand: Record) -> None:
    # RandomMask at 1 GiB: 90 and 88, mean 89, deviation √2 = 1.41; the paper has 93.61 ± 3.80: −4.61/3.80 = −1.2.
    # At 4 GiB one of its seeds is still on its way. FedDST at 2 GiB: 97 and 96, (96.5 − 97.35)/0.28 = −3.0.
    assert table(by_hand) == [
        ["method", *(word for cap in (1, 2, 3, 4) for word in (f"{cap} GiB", "paper", "Δ"))],
        [
            "RandomMask",
            *("89.00 ± 1.41", "93.61 ± 3.80", "−1.2σ"),
            *("95.00 ± 1.41", "96.89 ± 0.25", "−7.6σ"),
            *("96.00 ± 0.00", "97.50 ± 0.06", "−25.0σ"),
            *("97.00†", "97.72 ± 0.05", "−14.4σ"),
        ],
        [
            "FedDST",
            *("95.50 ± 0.71", "96.10 ± 0.37", "−1.6σ"),
            *("96.50 ± 0.71", "97.35 ± 0.28", "−3.0σ"),
            *("97.00 ± 0.00", "97.67 ± 0.20", "−3.4σ"),
            *("98.50 ± 0.71", "97.83 ± 0.17", "+3.9σ"),
        ],
        [
            "FedAvgM",
            *("–", "85.25 ± 23.96", "–"),
            *("–", "96.32 ± 0.47", "–"),
            *("–", "97.16 ± 0.39", "–"),
            *("–", "97.53 ± 0.24", "–"),
        ],
    ]
    assert short_table(by_hand)[1][1:] == [
        "89.00 ± 1.41 (−1.2σ)",
        "95.00 ± 1.41 (−7.6σ)",
        "96.00 ± 0.00 (−25.0σ)",
        "97.00† (−14.4σ)",
    ]
    assert notes(by_hand) == ["† not all seeds have an evaluation under this cap"]
    assert partial(by_hand) == "Partial: 3 of 6 runs not finished."


def test_differences_are_taken_on_the_same_seeds(by_hand: Record) -> None:
    # At 1 GiB 96 − 90 = 6 and 95 − 88 = 7; at 4 GiB only seed 0 has both: 98 − 97.
    assert differences(by_hand) == [
        ["difference", "1 GiB", "2 GiB", "3 GiB", "4 GiB"],
        ["FedDST − RandomMask", "+6.50 [6.00, 7.00]", "+1.50 [0.00, 3.00]", "+1.00 [1.00, 1.00]", "+1.00 (one seed)"],
    ]
    assert sentences(by_hand) == ["FedDST − RandomMask at 4 GiB: +1.00 (one seed)"]


def test_a_run_that_ended_for_its_rounds_is_marked(by_hand: Record) -> None:
    runs = tuple(replace(run, stopped_by="rounds", cap_gib=0.0) for run in by_hand.rows[1].runs)
    rows = (replace(by_hand.rows[1], runs=runs),)
    ended = replace(by_hand, rows=rows)
    assert [line[-3] for line in table(ended)] == ["4 GiB", "98.50 ± 0.71*"]
    assert [line[-6] for line in table(ended)] == ["3 GiB", "97.00 ± 0.00"]
    assert partial(ended) == ""
    [_, told] = differences(replace(by_hand, rows=(by_hand.rows[0], *rows)))
    assert told[-2:] == ["+1.00 [1.00, 1.00]", "+1.00 (one seed)*"]
    assert "\n\n\\* ended before the cap for another reason" in markdown(ended)


def test_the_page_says_what_is_missing_and_how_it_was_made(by_hand: Record) -> None:
    page = markdown(by_hand, ["accuracy.png"])
    assert page.startswith("Partial: 3 of 6 runs not finished.\n\nMNIST, 400 clients (classes); the paper's text. ")
    assert "; beside it Table 1 of the paper (10 runs), and Δ, the difference in standard deviations" in page
    assert "| RandomMask | 89.00 ± 1.41 |" in page
    assert "![accuracy](accuracy.png)" in page
    assert page.endswith("`feddst reproduce table1 --seeds 2`\n\nMade with a machine, PyTorch 2.6, at abc.\n")


def test_a_record_on_the_disk_is_enough_for_the_table_and_the_figures(by_hand: Record, tmp_path: Path) -> None:
    save_record(by_hand, tmp_path)
    loaded = load_record(tmp_path)
    assert loaded == by_hand
    assert markdown(loaded) == markdown(by_hand)
    assert draw_figures(loaded, tmp_path) == ["accuracy.png"]
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_records_of_earlier_versions_can_be_read(path: Path) -> None:
    record = load_record(path.parent)
    assert any(row.runs for row in record.rows)
    assert caption(record).startswith(f"{record.data}; ")


def test_the_columns_of_a_run_are_lines_of_the_file(by_hand: Record, tmp_path: Path) -> None:
    save_record(by_hand, tmp_path)
    lines = [line.strip() for line in (tmp_path / "record.json").read_text().splitlines()]
    assert '"accuracy": [0.9, 0.94, 0.96, 0.97],' in lines
    run = json.loads((tmp_path / "record.json").read_text())["rows"][0]["runs"][1]
    assert (run["seed"], run["run"], run["stopped_by"], run["round"]) == (1, "randommask-seed1", "", [1, 2, 3, 4])


def test_a_sweep_has_no_values_of_the_paper_and_a_figure_more(by_hand: Record, tmp_path: Path) -> None:
    rows = tuple(
        replace(row, name=f"alpha={value:g}", title=f"α = {value:g}", value=value)
        for row, value in zip(by_hand.rows, (0.001, 0.05, 0.1), strict=True)
    )
    sweep = replace(by_hand, target="alpha", rows=rows, symbol="α", usual="alpha=0.05")
    assert table(sweep)[1] == ["α = 0.001", "89.00 ± 1.41", "95.00 ± 1.41", "96.00 ± 0.00", "97.00†"]
    assert differences(sweep)[1][:2] == ["α = 0.001 − α = 0.05", "−6.50 [−7.00, −6.00]"]
    assert draw_figures(sweep, tmp_path) == ["accuracy.png", "sweep.png"]
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}', '{"format": 2}', "[" * 10**5])
def test_a_damaged_record_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "record.json").write_text(content)
    with pytest.raises(CheckpointError, match="is damaged, or not a reproduction's"):
        load_record(tmp_path)


def test_a_directory_belongs_to_one_reproduction(by_hand: Record, tmp_path: Path) -> None:
    rows = [row.name for row in by_hand.rows]
    assert earlier(tmp_path / "new", "table1", "paper", by_hand.data, rows) is None
    save_record(by_hand, tmp_path)
    (tmp_path / "feddst-seed1").mkdir()
    assert earlier(tmp_path, "table1", "paper", by_hand.data, [*rows, "another"]) == by_hand
    assert earlier(tmp_path, "table1", "paper", by_hand.data, ["feddst", "randommask"]) == by_hand  # fedavgm has no run
    with pytest.raises(CheckpointError, match=r"holds another reproduction: table1 / paper / MNIST.*, not table1 / "):
        earlier(tmp_path, "table1", "published", by_hand.data, rows)
    (tmp_path / "record.json").rename(tmp_path / "thesis.txt")
    with pytest.raises(CheckpointError, match="is not empty and holds no reproduction"):
        earlier(tmp_path, "table1", "paper", by_hand.data, rows)


def test_the_paper_orders_its_rows_as_its_claims_do() -> None:
    for cells in PAPER.values():
        assert len(cells) == 8
        for earlier_cap, later_cap in ((0, 1), (1, 2), (2, 3)):  # the best so far can only rise
            assert all(row[earlier_cap].mean <= row[later_cap].mean for row in cells.values())
        best = max(cells, key=lambda name: cells[name][3].mean)
        assert best in ("feddst", "feddst+fedprox")
