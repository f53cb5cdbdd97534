"""Option type for `module:name`, which names a function or class of the user."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

Target = Annotated[str, StringConstraints(pattern=r"^[\w.]+:[\w.]+$")]
