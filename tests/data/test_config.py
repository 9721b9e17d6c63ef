"""The options of the data and what they refuse."""

from dataclasses import replace
from typing import Any

import pytest

from feddst.data import DataConfig
from feddst.errors import OptionError
from feddst.options import options_of


def test_the_default_is_the_papers_mnist_split() -> None:
    config = DataConfig()
    config.check()
    assert (config.dataset, config.partition, config.clients) == ("mnist", "classes", 400)
    assert config.classes_per_client * config.images_per_class == 40


def test_every_field_is_an_option_with_help() -> None:
    options = options_of(DataConfig)
    assert [option.name for option in options] == list(DataConfig.__dataclass_fields__)
    assert all(option.help for option in options)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("dataset", "minst", "one of mnist, fashion-mnist, cifar10, cifar100, shakespeare, har, folder, file"),
        ("partition", "class", "one of classes, shards, dirichlet, iid, unequal, owner"),
        ("clients", 0, "at least 1"),
        ("classes_per_client", 0, "at least 1"),
        ("images_per_class", -1, "at least 1"),
        ("beta", 0.0, "in (0, 1e+06]"),
        ("beta", float("nan"), "in (0, 1e+06]"),
        ("min_images", 0, "at least 1"),
        ("root", 3, "text"),
    ],
)
def test_a_bad_value_is_named(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(OptionError) as refused:
        replace(DataConfig(), **{name: value}).check()
    assert str(refused.value).startswith(f"data.{name} must be {allowed}, got ")


def test_how_versions_are_made_is_not_said_where_there_are_none() -> None:
    DataConfig(augmentation=2, shift_only=True).check()
    with pytest.raises(OptionError, match=r"data\.shift_only has no effect with data\.augmentation 1"):
        DataConfig(shift_only=True).check()
