"""Option type for `module:name`, by which a job file names a function or class of the user's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

Target = Annotated[str, StringConstraints(pattern=r"^[\w.]+:[\w.]+$")]
