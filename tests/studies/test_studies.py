"""The studies in the repository: each can be made, and tunes on images held out unless it confirms."""

from pathlib import Path

import pytest

from feddst.studies.reproduce import StudyConfig

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))
OTHER_TASKS = {"har", "fashion-mnist", "shakespeare"}
CONFIRMING = {"thrifty-mnist", "thrifty-cifar10", "sprout-mnist", "sprout-cifar10"} | OTHER_TASKS


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_can_be_made(path: Path) -> None:
    config = StudyConfig(str(path))
    config.check()
    for row in config.all_rows():
        run = config.run_config(row, 0)
        run.check()
        assert bool(run.data.held_out) == (path.stem not in CONFIRMING)


def test_copies_of_images_are_worth_what_they_are_at_as_many_steps() -> None:
    """Of minibatches, in a round of a client with two classes."""
    config = StudyConfig(str(next(path for path in STUDIES if path.stem == "pieces-mnist")))
    rows = {row.name: config.run_config(row, 0) for row in config.all_rows()}
    steps = {
        name: run.local.epochs * -(-2 * run.data.images_per_class * run.data.augmentation // run.local.batch)
        for name, run in rows.items()
    }
    assert rows["shifted"].data.augmentation == 3
    assert steps["shifted"] == steps["thrifty"]


def test_they_are_there() -> None:
    assert {path.stem for path in STUDIES} > CONFIRMING
