"""The audit: rows of the source counted anew against the published files counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gobblin_dagster.core.commit import PublishedFile, SequenceState
from gobblin_dagster.core.constructs import Source
from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.publishers import branches_without_files, replaced_branches
from gobblin_dagster.engine.results import Audit
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec
from gobblin_dagster.state.store import StateStore

_FORMATS = {"parquet": "parquet", "csv": "csv", "jsonl": "json", "orc": "orc"}
"""pyarrow's names of the formats that it reads as datasets, by the extension of published files."""
_CHUNK_BYTES = 1 << 20
_MOST_ROW_BYTES = 16 << 20
"""Of CSV; read at once."""


def audit_dataset(job: JobSpec, source: Source, store: StateStore, dataset_urn: str) -> Audit | None:
    """Count a dataset's rows in its source (within the committed ranges) and in its published files.

    Neither count comes from the state: the source is read again, the files are opened. Only the rows that converters,
    policies and the fork kept back are taken from the commits' records; for branches whose publisher replaces files, how
    many rows each file of the newest snapshot got; and for those that had a table or topic once, how many went there.

    Returns:
        The counts, or None where the source cannot count or nothing was committed.
    """
    state = store.load_dataset_states(job.job, [dataset_urn]).get(dataset_urn)
    if state is None:
        return None
    source_rows = source.count_rows(dataset_urn, state.committed)
    if source_rows is None:
        return None
    files = store.load_snapshot(job.job, dataset_urn)
    totals = state.totals
    writers = {branch.name: job.writer_of(branch) for branch in job.fork.branches}
    unpublished = branches_without_files(job)
    kept_back = {name: totals.rows_read - n for name, n in totals.branch_rows.items() if name not in unpublished}
    expected = {branch: source_rows - rows for branch, rows in kept_back.items()}
    for branch in replaced_branches(job) & expected.keys():
        # The source's rows are those of all publications, the snapshot's those of some.
        expected[branch] = sum(file.rows for file in files if file.branch == branch)
    if totals.rows_quarantined:
        expected[QUARANTINE_BRANCH] = totals.rows_quarantined
    published = {
        branch: count_published(
            [file for file in files if file.branch == branch], writers[branch].options if branch in writers else {}
        )
        for branch in expected
    }
    if short := [branch for branch, rows in published.items() if rows < expected[branch]]:
        elsewhere = _published_elsewhere(store, job.job, dataset_urn)
        expected |= {branch: expected[branch] - elsewhere[branch] for branch in short}
    return Audit(dataset_urn, source_rows, published, expected)


def _published_elsewhere(store: StateStore, job: str, dataset_urn: str) -> Counter[str]:
    """Count the rows by branch that commits brought to tables and topics alone, whose publishers the job may have lost."""
    elsewhere: Counter[str] = Counter()
    for stored in store.load_sequences(job, {SequenceState.COMMITTED}, [dataset_urn]):
        try:
            sequence = decode_sequence(stored)
        except CorruptRecordError:
            continue  # what it brought elsewhere is not known, so it is missed
        if not any(traits_of(step, StepTraits).reads_staging for step in sequence.steps):
            continue
        in_files = {file.branch for file in sequence.files}
        written = sequence.report.rows_by_branch
        elsewhere.update({branch: rows for branch, rows in written.items() if branch not in in_files})
    return elsewhere


def count_published(files: Sequence[PublishedFile], csv: Mapping[str, Any]) -> int:
    """Count the rows in published files by opening them; `csv` are options of that writer (`header`, `delimiter`)."""
    # Here and not above: it imports pandas where that is installed, most of a second that an idle run need not pay.
    import pyarrow.dataset as ds  # noqa: PLC0415

    from gobblin_dagster.storage.arrow import arrow_files  # noqa: PLC0415

    by_format: dict[str, list[str]] = {}
    filesystem, paths = arrow_files([file.path for file in files])
    for path in paths:
        by_format.setdefault(_extension(path), []).append(path)
    rows = 0
    for extension, group in by_format.items():
        if extension in ("parquet", "orc"):
            rows += int(ds.dataset(group, filesystem=filesystem, format=extension).count_rows())
        elif extension == "avro":
            rows += sum(_count_avro(filesystem.open_input_file(path)) for path in group)
        else:
            # Compressed text is unpacked on the way, as the name says.
            streams = (filesystem.open_input_stream(path) for path in group)
            rows += sum(_count_csv(stream, csv) if extension == "csv" else _count_lines(stream) for stream in streams)
    return rows


def file_format(path: str) -> str:
    """Return pyarrow's name for the format of a published file; codecs after it are recognised by pyarrow itself.

    Raises:
        UsageError: pyarrow does not read the format as a dataset (`avro`, `text`).
    """
    extension = _extension(path)
    if extension not in _FORMATS:
        raise UsageError(
            problem=f"pyarrow reads no {extension} files: {path}.", hint="Give the paths to a reader of that format."
        )
    return _FORMATS[extension]


def _extension(path: str) -> str:
    return path.rpartition("/")[2].split(".")[1]


def _count_avro(file: Any) -> int:
    # An optional package, which the writer of the file had.
    with optional_package("fastavro", "Avro files", extra="avro"):
        from fastavro import block_reader  # noqa: PLC0415

    with file:
        return sum(block.num_records for block in block_reader(file))


def _count_csv(stream: Any, options: Mapping[str, Any]) -> int:
    import pyarrow as pa  # noqa: PLC0415  # slow to load
    from pyarrow import csv  # noqa: PLC0415  # slow to load

    with stream:
        reader = csv.open_csv(
            stream,
            csv.ReadOptions(autogenerate_column_names=True, block_size=_MOST_ROW_BYTES),
            csv.ParseOptions(delimiter=str(options.get("delimiter", ",")), newlines_in_values=True),
            # One column, as bytes: nothing is guessed.
            csv.ConvertOptions(column_types={"f0": pa.binary()}, include_columns=["f0"]),
        )
        rows: int = sum(batch.num_rows for batch in reader)
    return rows - (options.get("header") is not False)


def _count_lines(stream: Any) -> int:
    with stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(_CHUNK_BYTES), b""))
