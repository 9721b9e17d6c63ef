"""Calls of MLflow without waiting for minutes, and without lines of its own on the screen."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""What MLflow reads from the environment, unless the user has set it: a run should not wait for a dead server."""
_TALKATIVE = ("mlflow", "alembic", "urllib3", "git")


@contextmanager
def mannered() -> Iterator[None]:
    """Use it around calls of MLflow."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    patience = {name: value for name, value in PATIENCE.items() if name not in os.environ}
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    os.environ.update(patience)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
    finally:
        for name in patience:
            os.environ.pop(name, None)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
