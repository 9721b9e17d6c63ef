"""Data sets, how they are divided among clients, and the federation that results."""

from feddst.data.config import SOURCES, DataConfig, DataSource
from feddst.data.dataset import Dataset
from feddst.data.federation import Federation
from feddst.data.partition import Partition, split
from feddst.data.records import Records, StoredRecords
from feddst.data.remote import RemoteFederation
from feddst.data.sources import clients_of, federate, load, prepared

__all__ = [
    "SOURCES",
    "DataConfig",
    "DataSource",
    "Dataset",
    "Federation",
    "Partition",
    "Records",
    "RemoteFederation",
    "StoredRecords",
    "clients_of",
    "federate",
    "load",
    "prepared",
    "split",
]
