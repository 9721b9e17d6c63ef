"""A client's part of a round: from the bytes it is sent to the bytes it sends back."""

from feddst.clients.client import Beginning, Client, finished
from feddst.clients.exchange import TaskReader, answer

__all__ = ["Beginning", "Client", "TaskReader", "answer", "finished"]
