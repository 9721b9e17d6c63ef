"""The small federation of the clients' tests."""

from ..clients.conftest import dataset, module, native_client, one_thread, task, train_client

__all__ = ["dataset", "module", "native_client", "one_thread", "task", "train_client"]
