"""An extension of griffe, which reads docstrings for the site: shows `Example:` as code, like `Examples:`."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)


class ExampleSections(griffe.Extension):
    """Reads the heading of our examples as the one that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the heading in the docstring of each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
