"""Watchers that write down how runs go: event files for TensorBoard, runs in MLflow; and several watchers as one."""

from feddst.experiment.compare import ComparisonLines as Lines
from feddst.logs.log import Log
from feddst.logs.mlflow import MLflow
from feddst.logs.several import Several
from feddst.logs.tensorboard import TensorBoard

__all__ = ["Lines", "Log", "MLflow", "Several", "TensorBoard"]
