"""What other packages add, such as methods and codecs: modules that register it when they are imported.

A package names such a module as an entry point of the group `feddst.plugins`; `import feddst` imports it, in worker
processes and on Flower's nodes too.
"""

import importlib
import logging
from importlib.metadata import entry_points

GROUP = "feddst.plugins"

log = logging.getLogger(__name__)


def load_plugins() -> None:
    """Import the module of every plugin that is installed; one that cannot be imported is named and left out."""
    for entry in entry_points(group=GROUP):
        try:
            importlib.import_module(entry.module)
        except (Exception, SystemExit) as error:
            log.warning("plugin %s (%s) is left out: %s: %s", entry.name, entry.value, type(error).__name__, error)
