"""A client's part of a round: from the bytes it is sent to the bytes it sends back."""

from feddst.clients.task import Assignment, Failure, Job, Outcome, Reply

__all__ = ["Assignment", "Failure", "Job", "Outcome", "Reply"]
