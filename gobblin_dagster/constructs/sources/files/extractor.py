"""FilesExtractor: read the files of a work unit one after the other through a file format, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from gobblin_dagster.constructs.formats.base import FileFormat, FileReader, FormatError, InputFile, NoColumnsError
from gobblin_dagster.constructs.sources.files.positions import position_behind
from gobblin_dagster.constructs.types.arrow import no_rows
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ExtractError, TransientError
from gobblin_dagster.core.utils.text import first_line
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.storage.checksums import has_content
from gobblin_dagster.storage.os_errors import as_os_error, is_passing

_FORMAT_ERRORS = (pa.ArrowException, UnicodeError, EOFError)


class FilesExtractor:
    """Read the files that `WorkUnit.read` names: `{"files": [{"path", "size", "modified", "date"}, ...], "root"}`.

    If a file has a `checksum` too, it is compared after the file was read.

    Shape: each chunk has the schema of the first file that has columns. A later file that lacks one of these columns,
    or has another one, fails the work unit, so that no value is lost.

    Source: gobblin-core `FileBasedExtractor`. Differs: a file that changed since the plan, or during reading, is
    refused.
    """

    def __init__(self, unit: WorkUnit, file_format: FileFormat, context: ConstructContext) -> None:
        self._urn = unit.dataset_urn
        self._files: list[Any] = unit.read["files"]  # type: ignore[assignment]  # this source's own shape of `read`
        self._format = file_format
        self._base_dir = context.base_dir
        self._allow = context.allow
        self._unit = unit
        self._tells_ends = context.in_order
        self._files_read = 0
        self._is_inside = False
        """True while only some of a file's rows were handed out."""
        self.bytes_read = 0
        self._reader = self._open_first()
        self.schema: pa.Schema = self._reader.schema

    def chunks(self) -> Iterator[Chunk]:
        for number, file in enumerate(self._files):
            if number:
                self._reader = self._open(file, self.schema)
            label, rows, bytes_before = file["path"], 0, self.bytes_read
            batches = self._reader.batches()
            while True:
                with translated_errors(self._urn, label, rows):
                    batch = next(batches, None)
                    self.bytes_read = bytes_before + self._reader.bytes_read
                    if batch is None:
                        self._require_content(self._require_planned(file), file)
                        break
                self._is_inside = True
                yield Chunk(batch, label, pa.array(np.arange(rows + 1, rows + 1 + batch.num_rows, dtype=np.int64)))
                rows += batch.num_rows
            self._reader.close()
            self._files_read, self._is_inside = number + 1, False
            if self._tells_ends:
                yield Chunk(no_rows(self.schema), label, pa.array([], pa.int64()))

    def position(self) -> Watermark | None:
        """Return the position behind the files that were read whole; None while a file is read in part."""
        return None if self._is_inside else position_behind(self._unit, self._files, self._files_read)

    def close(self) -> None:
        self._reader.close()

    def _open_first(self) -> FileReader:
        """Open the first file; if it has no columns, with the schema of the first file that has some."""
        for number, planned in enumerate(self._files, start=1):
            try:
                reader = self._open(planned, None)
            except ExtractError as error:
                if not isinstance(cause := error.__cause__, NoColumnsError):
                    raise
                if number < len(self._files):
                    continue
                if cause.declared is None:
                    raise
                return self._open(self._files[0], cause.declared)
            if number == 1:
                return reader
            reader.close()
            break
        return self._open(self._files[0], reader.schema)

    def _open(self, planned: Any, schema: pa.Schema | None) -> FileReader:
        with translated_errors(self._urn, planned["path"]):
            return self._format.open(self._require_planned(planned), schema)

    def _require_planned(self, planned: Any) -> InputFile:
        """Return the file; raises FormatError if it is not the planned version, which the commit will name."""
        label, size = planned["path"], planned["size"]
        path = label if "://" in label else os.path.join(self._base_dir, label)  # noqa: PTH118  # keeps the text
        # The path that is checked is the one that is opened: a link may lead elsewhere a moment later.
        is_pinned = self._allow.paths is not None and "://" not in path
        real = os.path.realpath(path) if is_pinned else ""
        if problem := self._allow.path_problem(real or path, self._base_dir):
            raise FormatError(f"{problem}.")
        file = InputFile(path, real)
        found = file.look()
        if found.size_bytes != size or found.modified_us != planned.get("modified", found.modified_us):
            how = (
                f"planned {size} bytes, found {found.size_bytes}"
                if found.size_bytes != size
                else "it was written again"
            )
            raise FormatError(f"changed since it was planned: {how}. Run again when nobody writes to it any more.")
        return file

    def _require_content(self, file: InputFile, planned: Any) -> None:
        """Raise FormatError if the file's checksum is not the planned one."""
        if (checksum := planned.get("checksum")) and not has_content(file.path, checksum):
            raise FormatError(
                "changed since it was planned: it has another checksum. Run again to read what it holds now."
            )


@contextmanager
def translated_errors(dataset_urn: str, label: str, rows: int = 0) -> Iterator[None]:
    """Raise any failure to read a file as ExtractError with dataset and file, or as TransientError.

    Args:
        dataset_urn: the dataset of the file.
        label: the path of the file for messages.
        rows: rows that were read from the file before the failure.

    Raises:
        ExtractError: the file is gone, unreadable or not in its format.
        TransientError: its file system cannot be reached at the moment.
    """
    try:
        yield
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except FormatError as error:
        raise ExtractError(dataset_urn=dataset_urn, file=label, problem=error.problem, row=error.row) from error
    except FileNotFoundError as error:
        problem = "is gone since it was planned. Run again to plan without it."
        raise ExtractError(dataset_urn=dataset_urn, file=label, problem=problem) from error
    except Exception as error:
        # Clients of remote file systems raise errors of their own. All others, except those of formats, are bugs: pass
        # on.
        fault = as_os_error(error)
        if fault is None and not isinstance(error, _FORMAT_ERRORS):
            raise
        if fault is not None and is_passing(fault):
            raise TransientError(problem=f"Dataset {dataset_urn!r}, file {label}: {first_line(error)}.") from error
        behind = f" behind row {rows}" if rows else ""
        problem = f"cannot be read{behind}: {first_line(error)}"
        raise ExtractError(dataset_urn=dataset_urn, file=label, problem=problem) from error
