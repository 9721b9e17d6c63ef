"""For the site's reference: an option is shown with its default, not with its whole declaration."""

from typing import Any

import griffe


class OptionDefaults(griffe.Extension):
    """`rounds: int = option(200, "…", at_least=0)` becomes `rounds: int = 200`."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Called by griffe for each attribute that it has read."""
        value = attr.value
        if isinstance(value, griffe.ExprCall) and str(value.function) == "option":
            attr.value = value.arguments[0]
