"""Read one work unit chunk by chunk: to its end, to a limit, or to an error after which the rows before it are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gobblin_dagster.core.constructs import Chunk, Extractor, PositionedExtractor
from gobblin_dagster.core.errors import ExtractError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.memory import memory_of
from gobblin_dagster.core.task_state import TaskFailure
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import WatermarkInterval
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.task.retry import wait
from gobblin_dagster.spec.job import JobSpec


class StoppedError(Exception):
    """The run was asked to stop while a work unit waited."""


class LimitedReader:
    """Yields the chunks of a work unit, and knows the position that it has reached.

    Source: gobblin-runtime `LimitingExtractorDecorator` and the limiters of gobblin-utility. Differs: the next run
    reads the rows after the limit.
    """

    def __init__(
        self,
        unit: WorkUnit,
        extractor: Extractor,
        spec: JobSpec,
        is_stopped: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rows = 0
        self.failure: TaskFailure | None = None
        """The error that ended the reading, if the rows before it are kept."""
        self.high: Watermark = unit.expected_high
        """Position that has been reached, exclusive."""
        self._unit = unit
        self._extractor = extractor
        self._step = f"source {spec.source.type!r}"
        self._limit = spec.execution.limit
        self._keeps_part = spec.commit.policy == "partial"
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep
        self._began = clock()

    @property
    def is_cut(self) -> bool:
        """True if reading ended before the end of the work unit."""
        return self.high != self._unit.expected_high

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks; raises as `Extractor.chunks` if no rows can be kept, and StoppedError."""
        chunks = self._extractor.chunks()
        while True:
            try:
                with memory_of(self._step, self._unit.dataset_urn):
                    chunk = next(chunks, None)
            except Exception as error:
                if not self._keeps_part or not self._ends_here():
                    raise
                self.failure = describe_failure(error)
                return
            if chunk is None:
                return
            self.rows += chunk.batch.num_rows
            if chunk.batch.num_rows:  # an empty chunk only reports a position
                yield chunk
            if self._is_limit_reached() and self._ends_here():
                return
            self._throttle()

    def _is_limit_reached(self) -> bool:
        limit = self._limit
        return (
            (limit.rows is not None and self.rows >= limit.rows)
            or (limit.bytes is not None and self._extractor.bytes_read >= limit.bytes)
            or (limit.seconds is not None and self._clock() - self._began >= limit.seconds)
        )

    def _ends_here(self) -> bool:
        """Move the unit's end to its extractor's position; False if that is unknown, or is the unit's beginning."""
        position = self._extractor.position() if isinstance(self._extractor, PositionedExtractor) else None
        if position is None or position == self._unit.low:
            return False
        try:
            WatermarkInterval(self._unit.low, position)
            WatermarkInterval(position, self._unit.expected_high)
        except ValueError:
            problem = f"its extractor reports position {position}, which lies outside of {self._unit.interval}."
            raise ExtractError(dataset_urn=self._unit.dataset_urn, file="position", problem=problem) from None
        self.high = position
        return True

    def _throttle(self) -> None:
        """Wait while reading is faster than the allowed rate."""
        rows, data = self._limit.rows_per_second, self._limit.bytes_per_second
        due_s = max(
            0 if rows is None else self.rows / rows,
            0 if data is None else self._extractor.bytes_read / data,
        )
        ahead = due_s - (self._clock() - self._began) if due_s else 0
        if ahead > 0 and not wait(ahead, self._is_stopped, self._sleep):
            raise StoppedError
