"""Watchers that write down how runs go: event files for TensorBoard, runs in MLflow; and several watchers as one."""

from feddst.logs.log import LOGS, Book, Ending, Log
from feddst.logs.mlflow import MLflow
from feddst.logs.tensorboard import TensorBoard
from feddst.runtime.several import Several
from feddst.studies.compare import ComparisonLines as Lines

__all__ = ["LOGS", "Book", "Ending", "Lines", "Log", "MLflow", "Several", "TensorBoard"]
