"""What is registered is known by its name, once; what could not be used is refused."""

from abc import ABC, abstractmethod
from typing import ClassVar

import pytest

from feddst.core.registry import Registry, register
from feddst.errors import OptionError


class Fruit(ABC):
    registry: "ClassVar[Registry[Fruit]]"
    name: ClassVar[str]

    @abstractmethod
    def weigh(self) -> int: ...


class Apple(Fruit):
    name = "apple"

    def __init__(self, grams: int = 150) -> None:
        self.grams = grams

    def weigh(self) -> int:
        return self.grams


@pytest.fixture
def fruits() -> Registry[Fruit]:
    Fruit.registry = Registry("fruit", Fruit)
    return Fruit.registry


def test_a_class_is_called_and_stays_what_it_was(fruits: Registry[Fruit]) -> None:
    assert register(Apple) is Apple
    assert fruits["apple"].weigh() == 150


def test_an_object_is_kept_as_it_is(fruits: Registry[Fruit]) -> None:
    light = Apple(90)
    assert register(light) is light
    assert fruits.named("apple", "fruit.kind") is light


def test_classes_are_kept_where_the_registry_is_one_of_classes() -> None:
    kinds: Registry[type[Fruit]] = Registry("fruit", Fruit, classes=True)
    Fruit.registry = kinds  # type: ignore[assignment]
    register(Apple)
    assert dict(kinds) == {"apple": Apple}
    with pytest.raises(TypeError, match="a fruit must be a class that implements Fruit"):
        register(Apple(3))


def test_a_name_is_taken_once(fruits: Registry[Fruit]) -> None:
    register(Apple(1))
    with pytest.raises(ValueError, match="a fruit named apple is registered already: Apple"):
        register(Apple)
    assert fruits["apple"].weigh() == 1


@pytest.mark.usefixtures("fruits")
def test_what_cannot_be_used_is_refused() -> None:
    class Nameless(Apple):
        name = ""

    with pytest.raises(TypeError, match="the name of a fruit must be text, got ''"):
        register(Nameless)
    with pytest.raises(TypeError, match="a fruit must be a class that implements Fruit"):
        register(Fruit)
    for stranger in (int, "apple", None):
        with pytest.raises(TypeError, match="must implement a base class of feddst"):
            register(stranger)


def test_an_unknown_name_is_refused_with_the_nearest(fruits: Registry[Fruit]) -> None:
    register(Apple)
    with pytest.raises(OptionError, match=r"fruit\.kind must be one of apple, got 'aple'; did you mean 'apple'\?"):
        fruits.named("aple", "fruit.kind")
