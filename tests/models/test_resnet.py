"""A ResNet-18 with BatchNorm is federated like any other module."""

import torch

from feddst.clients.client import finished
from feddst.clients.reference import train_client
from feddst.core import Examples, LocalTraining, SparseSum, count_active
from feddst.methods import FedDST
from feddst.models import initial_model
from feddst.models.resnet import resnet18
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask, Message, Reference


def test_a_resnet_with_batchnorm_trains_sparsely_even_with_one_image_left_over() -> None:
    torch.manual_seed(0)
    module = resnet18((3, 8, 8), 4, width=8)
    local = LocalTraining(epochs=2, batch=4)
    method = FedDST(local=local, sparsity=Sparsity(0.8), readjust=Timetable(alpha=0.2, every=1))
    state = method.init(initial_model(module), seed=0)
    total = SparseSum(state.masks)
    for client in range(2):
        examples = Examples(torch.randn(9, 3, 8, 8), torch.randint(0, 4, (9,)))
        message = Message().read_as(Reference(method.broadcast(state, client)))
        task = ClientTask(client, 0, method.plan(state, client), message, examples)
        update, _ = finished(train_client(module, task))
        total.add(update)
    after = method.aggregate(state, total)
    assert len(after.masks) == 21  # 1 stem + 16 block + 3 shortcut convolutions, and the linear layer
    assert not any("norm" in name for name in after.masks)
    assert count_active(after.masks) == dict(state.budgets)
    assert set(after.buffers) == set(state.buffers)
    assert after.buffers["1.num_batches_tracked"].item() == 4  # 9 images: 4 + 5, twice
    assert not torch.equal(after.buffers["1.running_mean"], state.buffers["1.running_mean"])
    assert all(torch.isfinite(value).all() for value in after.params.values())


def test_it_has_the_size_it_should() -> None:
    assert sum(p.numel() for p in resnet18((3, 32, 32), 10).parameters()) == 11_173_962
