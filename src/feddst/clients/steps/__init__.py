"""What methods add to clients' local training: each step in a file of its own."""

from feddst.clients.steps.initial_pruning import InitialPruning
from feddst.clients.steps.lottery import LotteryPruning
from feddst.clients.steps.proximal import Proximal
from feddst.clients.steps.readjust import Growth, Readjust
from feddst.clients.steps.report import Report

__all__ = ["Growth", "InitialPruning", "LotteryPruning", "Proximal", "Readjust", "Report"]
