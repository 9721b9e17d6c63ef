"""What a payload carries: an order that both ends agree on, and a fingerprint that tells models apart."""

import pytest
import torch

from feddst.clients.steps import Report
from feddst.core import Broadcast, ClientPlan, LocalTraining
from feddst.errors import ModelError
from feddst.wire import Field, Layout, check_size, model_layout, update_layout

W, B = torch.zeros(2, 3), torch.zeros(2, dtype=torch.float16)
SEEN = torch.tensor(0)
SENT = Broadcast(1, {"w": W, "b": B}, {"seen": SEEN})


def names(layout: Layout) -> list[tuple[str, str]]:
    return [(field.group, field.name) for field in layout.fields]


def test_parameters_come_before_buffers_and_each_by_name() -> None:
    layout = model_layout({"w": W, "b": B}, {"seen": SEEN, "mean": W})
    assert names(layout) == [("params", "b"), ("params", "w"), ("buffers", "mean"), ("buffers", "seen")]
    assert layout.fields[1] == Field("params", "w", (2, 3), torch.float32)
    assert [field.size for field in layout.fields] == [2, 6, 6, 1]


def test_the_order_in_which_a_model_names_its_tensors_does_not_matter() -> None:
    assert model_layout({"w": W, "b": B}, {}).fingerprint == model_layout({"b": B, "w": W}, {}).fingerprint


def test_fingerprints_tell_models_apart() -> None:
    layouts = [
        model_layout({"w": W}, {}),
        model_layout({"v": W}, {}),
        model_layout({"w": W.T}, {}),
        model_layout({"w": W.half()}, {}),
        model_layout({}, {"w": W}),
        model_layout({"w": W, "b": B}, {}),
        model_layout({}, {}),
        Layout((Field("gradient", "w", (2, 3), torch.float32),)),
    ]
    assert len({layout.fingerprint for layout in layouts}) == len(layouts)
    assert all(0 <= layout.fingerprint < 2**64 for layout in layouts)


def test_a_client_sends_what_it_trained_and_what_it_was_asked_to_report() -> None:
    def asked(**orders: object) -> list[tuple[str, str]]:
        return names(update_layout(SENT, ClientPlan(LocalTraining(), **orders)))  # type: ignore[arg-type]

    gradient = [("gradient", "b"), ("gradient", "w")]
    assert asked() == [("params", "b"), ("params", "w"), ("buffers", "seen")]
    assert asked(keep=frozenset({"b"})) == [("params", "w"), ("buffers", "seen")]
    assert asked(steps=(Report("gradient"),)) == [("params", "b"), ("params", "w"), ("buffers", "seen"), *gradient]
    assert asked(steps=(Report("gradient"),), train=False) == gradient
    assert asked(train=False) == []


def test_a_codec_carries_all_but_the_buffers() -> None:
    layout = update_layout(SENT, ClientPlan(LocalTraining(), (Report("gradient"),)))
    assert [field.group for field in layout.coded] == ["params", "params", "gradient", "gradient"]
    assert layout.reports == ("gradient",)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64])
def test_parameters_that_would_lose_precision_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ModelError, match=r"parameter w is .*; what can be sent is float32, float16, bfloat16"):
        model_layout({"w": W.to(dtype)}, {})


def test_what_cannot_be_sent_is_refused_when_a_run_is_made() -> None:
    with pytest.raises(ModelError, match="parameter w is float64; what can be sent is float32, float16, bfloat16"):
        model_layout({"w": torch.zeros(1, dtype=torch.float64)}, {})
    with pytest.raises(ModelError, match="buffer c is complex64; what can be sent is real numbers"):
        model_layout({}, {"c": torch.zeros(1, dtype=torch.complex64)})
    huge = Layout((Field("params", "w", (2**15, 2**15), torch.float32),))
    with pytest.raises(
        ModelError, match="the model's values take 4,294,967,296 bytes; at most 4,294,967,295 can be sent"
    ):
        check_size(huge)
