"""What a report shows, by numbers that can be checked by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddst.report.content import collect, content
from feddst.report.curves import kept
from feddst.report.life import ROUNDS, mask_life
from feddst.runtime.checksums import Journal
from feddst.runtime.details import Detail, PixelMap, write_detail

from .conftest import MakeRun, detail


def entry(shown: dict[str, Any], label: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in shown["entries"] if each["label"] == label)
    return found


def test_curves_are_means_with_the_range_of_the_seeds_against_each_axis(comparison: Path) -> None:
    shown = content([comparison])
    assert [axis["key"] for axis in shown["axes"]] == ["measured", "formula", "rounds", "compute"]
    feddst = entry(shown, "feddst")
    # Seeds have 20, 40, 70, 80 % and 20, 50, 70, 90 % after 1, 2, 3, 4 MiB; the formula counts half of that.
    assert feddst["bands"] == [{"mean": [20, 45, 70, 85], "low": [20, 40, 70, 80], "high": [20, 50, 70, 90]}]
    assert {key: curve["x"] for key, curve in feddst["curves"].items()} == {
        "measured": [1, 2, 3, 4],
        "formula": [0.5, 1, 1.5, 2],
        "rounds": [1, 2, 3, 4],
        "compute": [1, 2, 3, 4],
    }


def test_the_table_has_caps_of_its_own_where_none_were_given(comparison: Path) -> None:
    heading, fedavgm, feddst, _ = content([comparison])["table"]["lines"]
    # The smallest upload of an entry is 4 MiB: a quarter and a half of it.
    assert heading == ["method", "1 MiB", "2 MiB", "whole run", "worst tenth", "MiB up", "MiB down"]
    assert fedavgm == ["fedavgm", "–", "–", "35.0 ± 7.1", "17.5 ± 3.5", "15.0", "30.0"]
    # At 2 MiB seeds have 40 and 50 %: mean 45, standard deviation 10/√2.
    assert feddst == ["feddst …", "20.0 ± 0.0", "45.0 ± 7.1", "85.0 ± 7.1", "42.5 ± 3.5", "4.0", "8.0"]


def test_the_headline_says_what_came_out_and_what_is_missing(comparison: Path) -> None:
    assert content([comparison])["headline"] == [
        "Over the whole runs feddst reaches 85.0 % mean client accuracy, "
        "followed by randommask (70.0) and fedavgm (35.0).",
        "feddst needs 2 MiB for the 35.0 % that fedavgm has after 15 MiB: 7.5 times less.",
        "Means over 2 seeds.",
        "feddst has not finished: what is shown is what there is so far.",
    ]


def test_large_numbers_in_the_headline_have_no_exponent(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("all/feddst", [0.4, 0.5], mib=10.0)
    make_run("all/fedavgm", [0.4], method="fedavgm", mib=1234.0)
    assert content([tmp_path / "all"])["headline"][1] == (
        "feddst needs 10 MiB for the 40.0 % that fedavgm has after 1,230 MiB: 120 times less."
    )


def test_one_run_alone_has_a_headline_too(make_run: MakeRun) -> None:
    assert content([make_run("run", [0.2, 0.5, 0.4])])["headline"] == [
        "feddst reaches 50.0 % mean client accuracy with 3.0 MiB of upload, measured.",
        "One seed.",
    ]


def test_a_run_that_has_just_begun_is_shown_as_such(make_run: MakeRun) -> None:
    shown = content([make_run("run", [], finished=False)])
    assert shown["headline"] == ["No round has been evaluated yet."]
    assert (shown["axes"], shown["entries"][0]["unfinished"]) == ([], [0])
    assert shown["entries"][0]["facts"] == ["no round yet"]


def test_a_seed_that_has_just_begun_does_not_bend_the_band(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("all/one", [None, None, 0.2, 0.4], seed=0)
    make_run("all/two", [0.1, None, 0.2], seed=1, mib=1.0)
    make_run("all/three", [0.1, None, 0.2], seed=2, mib=0.1, finished=False)
    places = content([tmp_path / "all"])["entries"][0]["curves"]["measured"]["x"]
    assert places == sorted(places)
    assert places[-1] == 4


def test_a_seed_without_an_evaluation_is_not_counted(make_run: MakeRun, tmp_path: Path) -> None:
    for seed, scores in ((0, [0.2, 0.6]), (1, [0.2, 0.4]), (2, [])):
        make_run(f"all/{seed}", scores, seed=seed, finished=bool(scores))
    shown = content([tmp_path / "all"])
    assert shown["headline"][1] == "Means over 2 seeds."
    assert shown["spread"] == "mean and range of 2 seeds"
    assert shown["table"]["caption"].endswith("Mean ± standard deviation over 2 seeds.")
    assert shown["table"]["lines"][1][3] == "50.0 ± 14.1†"
    assert shown["table"]["notes"][0] == "† not all seeds have an evaluation under this cap"
    assert shown["entries"][0]["best"] == "50.0 ± 14.1"


def test_of_many_entries_the_best_the_next_and_the_last_are_named(make_run: MakeRun, tmp_path: Path) -> None:
    for i, method in enumerate(("fedavg", "fedavgm", "fedprox", "randommask", "feddst", "snip")):
        make_run(f"all/{method}", [0.1 * (i + 1)], method=method)
    assert content([tmp_path / "all"])["headline"][0] == (
        "Over the whole runs snip reaches 60.0 % mean client accuracy, followed by feddst (50.0); "
        "fedavg (10.0) is last of 6."
    )


def test_a_large_map_is_drawn_with_fewer_squares(make_run: MakeRun) -> None:
    rows = tuple(tuple((x + y) / 1000 for x in range(115)) for y in range(60))
    detail = Detail(1, inputs=PixelMap("fc1.weight", rows))
    shown = content([make_run("run", [0.5], [detail])])["entries"][0]["masks"]["inputs"]
    assert shown["side"] == 3
    drawn = shown["maps"][0]["rows"]
    assert (len(drawn), len(drawn[0])) == (20, 39)
    assert drawn[0][:2] == [2, 5]  # the middles of the first squares of three by three
    assert drawn[19][38] == 172  # 58 + 114: only one column is left at the edge


def test_bytes_are_taken_apart(comparison: Path) -> None:
    sent = entry(content([comparison]), "feddst")["traffic"]
    whole = 4 * 2**20
    assert sent["rounds"] == 4
    assert sent["up"] == {
        "mask": whole // 10,
        "values": whole - whole // 10 - whole // 20,
        "header": whole // 20,
        "other": 0,
    }
    assert sum(sent["down"].values()) == 2 * whole


def test_masks_and_clients_are_as_the_details_have_them(comparison: Path) -> None:
    shown = content([comparison])
    feddst = entry(shown, "feddst")
    first, second = feddst["masks"]["layers"]
    assert (first["entered"], first["left"], first["apart"]) == ([2, 4, 6, 8], [2, 4, 6, 8], [0.1] * 4)
    assert (second["size"], second["active"], second["entered"]) == (10, [10] * 4, [0] * 4)
    maps = feddst["masks"]["inputs"]["maps"]
    assert [each["round"] for each in maps] == [1, 2, 3, 4]
    assert maps[0]["rows"][0] == [25, 50, 75, 100]  # (x + y + 1) / 40, in thousandths
    # Both seeds' clients together; mean over seeds 80 and 90 %, the worst tenth half of that.
    last = feddst["clients"][-1]
    assert (last["round"], last["counts"][4], last["counts"][19]) == (4, 6, 2)
    assert (last["mean"], last["worst"]) == (0.85, 0.425)
    assert (entry(shown, "fedavgm")["masks"], entry(shown, "fedavgm")["clients"]) == (None, [])


def test_details_of_a_round_that_has_no_row_yet_are_left_out(make_run: MakeRun) -> None:
    run = make_run("run", [0.5], [detail(1)], finished=False)
    Journal(run / "details.jsonl").append(write_detail(detail(2)))
    assert [each["round"] for each in content([run])["entries"][0]["clients"]] == [1]


def test_a_lead_that_seeds_do_not_agree_on_is_called_so(make_run: MakeRun, tmp_path: Path) -> None:
    for seed, (best, near, far) in enumerate(((0.5, 0.55, 0.05), (0.7, 0.5, 0.55), (0.6, 0.59, 0.4))):
        make_run(f"all/a{seed}", [best], method="feddst", seed=seed)  # 60 %
        make_run(f"all/b{seed}", [near], method="randommask", seed=seed)  # -5, +20 and +1 points
        make_run(f"all/c{seed}", [far], method="grasp", seed=seed)  # 33 ± 26 %, but each seed is behind
    sentences = content([tmp_path / "all"])["headline"]
    assert sentences[1] == "The lead of feddst over randommask is within the spread of the seeds."


def test_without_common_seeds_a_lead_is_held_against_the_spread_of_the_best(make_run: MakeRun, tmp_path: Path) -> None:
    for seed, score in enumerate((0.5, 0.7)):
        make_run(f"all/a{seed}", [score], method="feddst", seed=seed)  # 60 ± 14.1 %
        make_run(f"all/b{seed}", [score - 0.1], method="randommask", seed=seed + 5)  # 50 %
        make_run(f"all/c{seed}", [0.05 + 0.7 * seed], method="grasp", seed=seed + 5)  # 40 ± 49.5 %
    sentences = content([tmp_path / "all"])["headline"]
    assert sentences[1] == "The lead of feddst over randommask is within the spread of the seeds."


def test_the_best_is_the_best_before_rounding(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("all/a", [0.9849], method="fedavgm")
    make_run("all/b", [0.9854], method="feddst")
    assert content([tmp_path / "all"])["headline"][0] == (
        "Over the whole runs feddst reaches 98.5 % mean client accuracy, followed by fedavgm (98.5)."
    )


@pytest.mark.parametrize("yardstick", ["fedavgm", "randommask"])
def test_the_best_is_measured_by_the_dense_entry_or_else_by_the_second(
    make_run: MakeRun, tmp_path: Path, yardstick: str
) -> None:
    make_run("all/a", [0.4, 0.5, 0.8], method="feddst")
    make_run("all/b", [0.6], method="snip" if yardstick == "fedavgm" else yardstick, mib=6.0)
    make_run("all/c", [0.5], method="snip" if yardstick == "randommask" else yardstick, mib=4.0)
    wanted = {
        "fedavgm": "feddst needs 2 MiB for the 50.0 % that fedavgm has after 4 MiB: half as much.",
        "randommask": "feddst needs 3 MiB for the 60.0 % that randommask has after 6 MiB: half as much.",
    }
    assert content([tmp_path / "all"])["headline"][1] == wanted[yardstick]


def test_a_card_says_what_its_number_is(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("all/feddst-seed0", [0.3, 0.4, 0.9])
    alone = content([tmp_path / "all"])["entries"][0]
    assert (alone["best"], alone["best_of"]) == ("90.0", "best of the whole run")
    config = {"methods": ["feddst"], "seeds": [0], "caps": [2 / 1024], "base": {}}
    (tmp_path / "all/comparison.json").write_text(json.dumps({"config": config, "command": "x", "data": ""}))
    capped = content([tmp_path / "all"])["entries"][0]
    assert (capped["best"], capped["best_of"]) == ("40.0", "best with 0.00195312 GiB of upload")


def test_many_rounds_are_added_up_to_few_steps(make_run: MakeRun) -> None:
    count = 2 * ROUNDS + 1
    details = [detail(number, entered=1, apart=0.5) for number in range(1, count + 1)]
    _, entries = collect([make_run("run", [0.5] * count, details)])
    life = mask_life(entries[0])
    assert life is not None
    steps = life.layers[0].steps
    assert (life.together, len(steps)) == (3, 81)  # 241 rounds in threes
    assert (steps[0].round, steps[0].entered, steps[0].apart) == (3, 3, 0.5)
    assert sum(step.entered for step in steps) == count


def test_long_curves_are_thinned_out_with_their_ends_kept() -> None:
    places = kept(10_000, 240)
    assert (places[0], places[-1]) == (0, 9_999)
    assert 150 < len(places) <= 240
    assert np.all(np.diff(places) > 0)
    assert places[1] == 1  # a logarithmic axis needs the first points
    np.testing.assert_array_equal(kept(7, 240), range(7))


def test_a_long_comparison_stays_small(make_run: MakeRun, tmp_path: Path) -> None:
    details = [detail(number, entered=1) for number in range(1, 1501)]
    for seed in (0, 1):
        make_run(f"all/{seed}", [0.123456 + i / 10_000 for i in range(1500)], details, seed=seed)
    assert len(json.dumps(content([tmp_path / "all"]))) < 60_000


def test_settings_show_what_a_method_fixes_and_what_it_does_not_use(comparison: Path) -> None:
    shown = {each["name"]: each for each in content([comparison])["settings"]}
    assert shown["method"]["values"] == ("fedavgm", "feddst", "randommask")
    assert shown["sparsity.level"]["values"] == ("–", "0.8", "0.8")
    assert shown["sparsity.level"]["differs"]
    assert not shown["local.lr"]["differs"]
    assert not shown["rounds"]["differs"]


def test_the_commands_make_the_runs_and_the_report(make_run: MakeRun) -> None:
    run = make_run("my run", [0.1], method="fedavgm", seed=2, local__lr=0.5)
    commands = content([run])["commands"]
    assert commands["runs"][0].startswith("feddst run --method fedavgm --seed 2 --local.lr 0.5")
    assert commands["runs"][0].endswith(f"--out '{run}'")
    assert commands["report"] == f"feddst report '{run}'"


@pytest.mark.parametrize(
    ("accounting", "title"),
    [("paper", "upload, by the paper's formula"), ("published", "upload, as the published code adds it up")],
)
def test_a_formula_s_accounting_draws_against_the_formula(make_run: MakeRun, accounting: str, title: str) -> None:
    shown = content([make_run("run", [0.1, 0.2], accounting=accounting)])
    assert shown["axis"] == "formula"
    assert next(axis["title"] for axis in shown["axes"] if axis["key"] == "formula") == title
