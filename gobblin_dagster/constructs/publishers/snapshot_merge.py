"""MergePublisher: merge rows into the Parquet files of a snapshot by key.

Only files with a row that is replaced or deleted are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_dagster.constructs.publishers.changes import Bounds, bounds, read_changes, require_order
from gobblin_dagster.constructs.publishers.child_rows import child_changes
from gobblin_dagster.constructs.publishers.history import keep_history
from gobblin_dagster.constructs.publishers.merge_files import FileMerge, Read
from gobblin_dagster.constructs.publishers.merge_rule import JudgesMerges, KeyOptions, plain
from gobblin_dagster.constructs.publishers.tables import OTHER_TYPE_REMEDY, is_parquet, open_parquet, unified_schema
from gobblin_dagster.constructs.types.arrow import exact_cast
from gobblin_dagster.constructs.types.plain import plain_schema
from gobblin_dagster.constructs.types.plain_parquet import plain_batches
from gobblin_dagster.constructs.types.wider import is_wider
from gobblin_dagster.constructs.writers.partitions import folder_values
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.constructs import DataWriter, Publication, PublishView, Rewritten
from gobblin_dagster.core.errors import StepRefusedError, StorageError
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.core.traits import ALL_WIDENINGS
from gobblin_dagster.core.urn import DatasetUrn

_BATCH_ROWS = 16_384


class SnapshotOptions(KeyOptions):
    """Options of the publisher `merge`."""

    mode: Literal["merge", "scd2"] = "merge"
    """`merge`: a row replaces the one with its `key`, unless that one is newer by the job's `extract.delta_fields`.
    `scd2`: the snapshot keeps all versions of a row, each with the time from which and to which it was valid."""


class MergePublisher(JudgesMerges[SnapshotOptions]):
    """Publish Parquet files whose rows replace, add to and delete those of the newest snapshot by key.

    Files with a row to replace, delete or end leave the snapshot, and are written again; all others stay. Older
    snapshots stay as they were.

    Source: none; Gobblin's compaction removes rows with equal keys afterwards, by MapReduce.
    """

    Options = SnapshotOptions
    reads_current: ClassVar = True
    allows_compaction: ClassVar = True
    widens: ClassVar = ALL_WIDENINGS

    def publish(self, view: PublishView) -> Publication:
        return Publication()

    def rewrite(self, view: PublishView, new_writer: Callable[[pa.Schema], DataWriter]) -> Rewritten | None:
        step = f"merge into the newest snapshot of branch {view.branch!r}"
        rule = self.rule_for(view)
        keeps_rows = rule.keeps_rows
        paths = [view.staged[file.path] for file in view.files]
        try:
            require_order(step, view, rule)
            changes = read_changes(step, paths, unified_schema(step, paths), rule, self._context)
            files = [(file, _footer(file)) for file in view.current]
            history = rule.history
            schema = _schema(step, rule.columns(changes.schema), files)
            levels = {file.path: _levels(view.dataset_urn, file.path, footer, schema) for file, footer in files}
            known = {name for file, footer in files for name in (*_names(footer), *levels[file.path])}

            def readers(ends: Bounds) -> Iterator[tuple[str, Read]]:
                wanted = (file.path for file, footer in files if _may_hold(footer, ends))
                return ((path, _reader(path, levels[path])) for path in wanted)

            def scan(names: Sequence[str], ends: Bounds) -> Iterator[pa.RecordBatch]:
                return (batch for _, read in readers(ends) for batch in read(list(names)))

            if history is not None:
                changes, rule = keep_history(step, changes, rule, history, schema, scan, view.now)
            with child_changes(changes, rule, schema, scan) as (changes, rule):
                found = readers({} if rule.delete_missing else bounds(changes.keys, rule.key))
                merged = FileMerge(step, found, known, schema, changes, rule, history.valid_to if history else "")
                if keeps_rows and merged.only_adds:
                    return None
                return Rewritten(_staged(merged, new_writer(schema)), tuple(merged.touched))
        except (ValueError, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:  # ArrowInvalid is a ValueError
            raise StepRefusedError(step=step, problem=str(error)[:500]) from error
        except OSError as error:
            raise StorageError.of(error, "merge files of", view.folder) from error


def _staged(merged: FileMerge[str], writer: DataWriter) -> tuple[StagedFile, ...]:
    try:
        for batch in merged.rows():
            writer.write(batch)
        return tuple(writer.finish())
    except BaseException:
        writer.abort()
        raise


def _footer(file: PublishedFile) -> pq.FileMetaData:
    if not is_parquet(file.path):
        raise ValueError(
            f"it holds {file.path}, from when the branch had another writer, and a merge reads Parquet alone. Give the "
            "branch another name, and let it read all rows: `gobblin startpoint set` with `oldest`"
        )
    with open_parquet(file.path) as opened:
        return opened.metadata


def _names(footer: pq.FileMetaData) -> list[str]:
    names: list[str] = footer.schema.to_arrow_schema().names
    return names


def _levels(dataset_urn: str, path: str, footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the values of columns that only the names of a file's folders hold: its writer did not keep the columns.

    Raises ArrowInvalid if a name holds no value of the column's type.
    """
    inside = path.removeprefix(DatasetUrn(dataset_urn).folder_in(path) + "/")
    lacking = {*schema.names}.difference(_names(footer))
    texts = {name: text for name, text in folder_values(inside).items() if name in lacking}
    return {name: exact_cast(pa.array([text]), schema.field(name).type)[0] for name, text in texts.items()}


def _reader(path: str, levels: Mapping[str, pa.Scalar]) -> Read:
    def read(names: list[str] | None) -> Iterator[pa.RecordBatch]:
        with open_parquet(path) as file:
            there = [name for name in names if name in file.schema_arrow.names] if names is not None else None
            for batch in plain_batches(file, _BATCH_ROWS, there):
                for name, value in levels.items():
                    batch = batch.append_column(name, pa.repeat(value, batch.num_rows))  # noqa: PLW2901  # only more
                yield batch

    return read


def _schema(step: str, new: pa.Schema, files: list[tuple[PublishedFile, pq.FileMetaData]]) -> pa.Schema:
    """Return all columns, those of the snapshot first, each in the widest of its types; raises StepRefusedError."""
    columns: dict[str, pa.Field] = {}
    for fields in (*(plain_schema(footer.schema.to_arrow_schema()) for _, footer in files), new):
        for field in fields:
            kind = plain(field.type)
            known = columns.setdefault(field.name, pa.field(field.name, kind)).type
            if is_wider(kind, known):
                columns[field.name] = pa.field(field.name, kind)
            elif kind != known and not is_wider(known, kind):
                problem = (
                    f"column {field.name!r} is {known} in published files and {kind} in the new rows, and neither is "
                    f"wider; {OTHER_TYPE_REMEDY}"
                )
                raise StepRefusedError(step=step, problem=problem)
    return pa.schema(columns.values())


def _may_hold(footer: pq.FileMetaData, ends: Bounds) -> bool:
    """Return False if the statistics of a file show that no row lies between the bounds."""
    return not footer.num_rows or any(
        all(_meets(footer.row_group(number), name, both) for name, both in ends.items())
        for number in range(footer.num_row_groups)
    )


def _meets(group: pq.RowGroupMetaData, name: str, ends: tuple[Any, Any]) -> bool:
    columns: Mapping[str, pq.ColumnChunkMetaData] = {
        column.path_in_schema: column for column in map(group.column, range(group.num_columns))
    }
    found = columns[name].statistics if name in columns else None
    if found is None or not found.has_min_max or type(found.min) is not type(ends[0]):
        return True
    return bool(found.min <= ends[1] and found.max >= ends[0])
