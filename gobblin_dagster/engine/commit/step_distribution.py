"""Move many files in tasks instead of on the driver: batches of steps as files in staging, results as counts.

The committer knows no Spark: the caller gives it a `StepExecutor` (see `engine/spark/runner.py`), whose tasks call
`run_batches_in_arrow`. Only renames are distributed. They are verified by content, so it does no harm if a task runs
twice, or still runs when the next run does the same. The driver syncs the folders and commits.

Source: the scalability section of the exactly-once design, which moves the steps into containers.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.commit import CommitStep, canonical_json
from gobblin_dagster.core.errors import StagedFileLostError, StepRefusedError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.steps import renames_of, step_from_json, step_to_json
from gobblin_dagster.engine.commit.steps.rename import RenameFileStep
from gobblin_dagster.storage import open_storage

FILES_PER_BATCH = 2_000
"""Number of files that one task moves: about a second of work."""
_ERRORS: dict[str, type[StepRefusedError] | type[StagedFileLostError]] = {
    error.code: error for error in (StepRefusedError, StagedFileLostError)
}


@runtime_checkable
class StepExecutor(Protocol):
    """Runs batches of steps in tasks; the committer calls it from several threads."""

    def execute_batches(self, paths: Sequence[str], output_root: str, *, verify_content: bool) -> list[str]:
        """Let `run_batches_in_arrow` run each batch, and return its results in the order of the paths.

        Raises:
            TransientError: tasks were lost; they may have done their work, or may still do it.
        """


@dataclass(frozen=True, slots=True)
class StepDistribution:
    """Moves the files of a sequence by `executor` if it has at least `threshold` files."""

    executor: StepExecutor
    threshold: int

    def execute(
        self,
        storage: Storage,
        output_root: str,
        staging_dir: str,
        batches: Sequence[Sequence[CommitStep]],
        *,
        verify_content: bool,
    ) -> list[tuple[int, list[Exception]]]:
        """Run batches of renames; return (steps executed, errors) of each batch."""
        # A new folder: a redo may find complete or incomplete files of the first try.
        folder = f"{staging_dir}/_steps/{secrets.token_hex(8)}"
        paths = [f"{folder}/{number:05d}.json" for number in range(len(batches))]
        for path, steps in zip(paths, batches, strict=True):
            storage.put_if_absent(path, canonical_json([step_to_json(step) for step in steps]).encode())
        results = self.executor.execute_batches(paths, output_root, verify_content=verify_content)
        return [_read_result(text) for text in results]


def run_rename(storage: Storage, step: RenameFileStep, *, verify_content: bool) -> bool:
    """Move one file unless it is moved already; return True if it was moved now. Raises as `RenameFileStep.execute`."""
    if verify_content:
        if step.verify(storage):
            step.forget_source(storage)
            return False
        step.check_content(storage)
    step.execute(storage)
    return True


def run_batch(storage: Storage, path: str, *, verify_content: bool) -> str:
    """Run the steps of one batch file up to the first error; return the count and the error as JSON."""
    executed = 0
    try:
        for raw in json.loads(storage.read(path)):
            step = step_from_json(raw)
            executed += bool(sum(run_rename(storage, r, verify_content=verify_content) for r in renames_of([step])))
    except (StepRefusedError, StagedFileLostError) as error:
        return json.dumps({"executed": executed, "code": error.code, "facts": asdict(error)})
    except OSError as error:
        facts = [error.errno, error.strerror or str(error), error.filename]
        return json.dumps({"executed": executed, "code": "os", "facts": facts})
    return json.dumps({"executed": executed})


def run_batches_in_arrow(
    paths: Sequence[str], output_root: str, verify_content: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run batches by number inside a Spark task.

    Shape: in, one int64 column of batch numbers; out, `number` and `result`, one row per batch.
    """
    storage = open_storage(output_root)
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        results = [run_batch(storage, paths[number], verify_content=verify_content) for number in numbers]
        yield pa.RecordBatch.from_arrays(
            [pa.array(numbers, pa.int64()), pa.array(results, pa.string())], names=["number", "result"]
        )


def _read_result(text: str) -> tuple[int, list[Exception]]:
    result: dict[str, Any] = json.loads(text)
    executed = int(result["executed"])
    match result.get("code"):
        case None:
            return executed, []
        case "os":
            return executed, [OSError(*result["facts"])]
        case code:
            return executed, [_ERRORS[code](**result["facts"])]
