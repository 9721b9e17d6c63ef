"""The small federation of the clients' tests."""

from ..clients.conftest import assignment, dataset, job, module, native_client, one_thread, train_client

__all__ = ["assignment", "dataset", "job", "module", "native_client", "one_thread", "train_client"]
