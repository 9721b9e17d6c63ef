"""The small federation of the clients' tests."""

from ..clients.conftest import dataset, module, one_thread

__all__ = ["dataset", "module", "one_thread"]
