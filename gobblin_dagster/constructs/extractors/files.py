"""FilesExtractor: reads a work unit's files one after the other through a file format, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from gobblin_dagster.constructs.extractors.format import FileFormat, FileReader, FormatError, InputFile
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ExtractError, TransientError
from gobblin_dagster.core.work_unit import WorkUnit


class FilesExtractor:
    """Reads the files that `WorkUnit.read` names: `{"files": [{"path", "size", "date"}, ...]}`.

    All chunks have the schema of the first file; another file that lacks one of its columns, or has one more, fails the
    work unit rather than lose values.

    Source: gobblin-core `FileBasedExtractor`. Differs: a file that changed since the plan is refused.
    """

    def __init__(self, unit: WorkUnit, file_format: FileFormat, context: ConstructContext) -> None:
        self._urn = unit.dataset_urn
        self._files: list[Any] = unit.read["files"]  # type: ignore[assignment]  # this source's own shape of `read`
        self._format = file_format
        self._base_dir = context.base_dir
        self.bytes_read = 0
        self._reader = self._open(self._files[0], None)
        self.schema: pa.Schema = self._reader.schema

    def chunks(self) -> Iterator[Chunk]:
        for number, file in enumerate(self._files):
            if number:
                self._reader = self._open(file, self.schema)
            label, rows, bytes_before = file["path"], 0, self.bytes_read
            batches = self._reader.batches()
            while True:
                with translated_errors(self._urn, label):
                    batch = next(batches, None)
                    self.bytes_read = bytes_before + self._reader.bytes_read
                if batch is None:
                    break
                yield Chunk(batch, label, pa.array(np.arange(rows + 1, rows + 1 + batch.num_rows, dtype=np.int64)))
                rows += batch.num_rows
            self._reader.close()

    def close(self) -> None:
        self._reader.close()

    def _open(self, planned: Any, schema: pa.Schema | None) -> FileReader:
        label, size = planned["path"], planned["size"]
        path = label if "://" in label else os.path.join(self._base_dir, label)  # noqa: PTH118  # keeps the path as text
        file = InputFile(path)
        with translated_errors(self._urn, label):
            found = file.size()
            if found != size:
                raise FormatError(
                    f"changed since it was planned: planned {size} bytes, found {found}. "
                    "Run again once nobody writes to it any more."
                )
            return self._format.open(file, schema)


@contextmanager
def translated_errors(dataset_urn: str, label: str) -> Iterator[None]:
    """Raise what goes wrong with one file as ExtractError with dataset and file, or as TransientError.

    Raises:
        ExtractError: the file is gone, unreadable or not of its format.
        TransientError: its file system cannot be reached now.
    """
    try:
        yield
    except FormatError as error:
        raise ExtractError(dataset_urn=dataset_urn, file=label, problem=error.problem, row=error.row) from error
    except FileNotFoundError as error:
        problem = "is gone since it was planned. Run again to plan without it."
        raise ExtractError(dataset_urn=dataset_urn, file=label, problem=problem) from error
    except (ConnectionError, TimeoutError) as error:
        raise TransientError(problem=f"Dataset {dataset_urn!r}, file {label}: {error}.") from error
    except (OSError, pa.ArrowException, UnicodeError) as error:
        problem = f"cannot be read: {first_line(error)}"
        raise ExtractError(dataset_urn=dataset_urn, file=label, problem=problem) from error


def first_line(error: BaseException) -> str:
    """Return what a library says, without its trailing details, in bounded length."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
