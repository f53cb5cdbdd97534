"""Functions and converters that jobs of these tests name, and that go wrong where a file tells them to."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.core.constructs import Chunk, ConstructContext


def doubled(frame: Any) -> Any:
    return frame.selectExpr("id", "value * 2 as value")


def no_frame(frame: Any) -> Any:
    return None


_CALLS = itertools.count()
"""How often `killed_at_second_call` was called in this process; work units call it side by side."""


def killed_at_second_call(frame: Any) -> Any:
    """Kill the whole run at its second call, once: while the file `kill` is there."""
    if next(_CALLS) == 1 and Path("kill").exists():
        Path("kill").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return frame


class Fragile:
    """A converter that fails, or kills its worker, while a file is there."""

    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        fail_while: str = ""
        kill_once: str = ""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        if self._options.kill_once and Path(self._options.kill_once).exists():
            Path(self._options.kill_once).unlink()
            os._exit(9)
        if self._options.fail_while and Path(self._options.fail_while).exists():
            raise ValueError("told to fail")
        yield chunk
