"""The parts of the commit transaction, and the manifest after it, as steps that can be verified but not run alone.

The exactly-once design has a step per partition that sets its high watermark, the original one step that saves the
dataset's state. A step that can run alone can run before its data is published, so here the commit transaction does
both. These values name its parts for people, for the design's API (`step_store.py`) and for later checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.serialization import from_document, to_document
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.watermark import Position, Watermark, watermark_type
from gobblin_dagster.engine.commit.manifest import manifest_path
from gobblin_dagster.state.store import StateStore


class ProgressStep(Protocol):
    """A part of the commit transaction."""

    type_name: ClassVar[str]
    version: ClassVar[int]

    def verify_in(self, store: StateStore) -> bool:
        """True if this part is committed."""

    def to_json(self) -> dict[str, Any]:
        """Return the step's fields, without type and version."""

    def describe(self) -> str:
        """Say in a few words what the step does."""


@dataclass(frozen=True, slots=True)
class HighWatermarkStep:
    """Moves the watermark of one component (a Kafka partition) to a position: the next one to read.

    Source: `HighWatermarkCommitStep` of the exactly-once design. Differs: done by the commit transaction, for all
    partitions at once and only if no other run has moved them meanwhile; verified as "reached", so it stays true after
    later commits.
    """

    job: str
    dataset_urn: str
    partition: str
    """Component of the watermark; empty for a watermark of one component."""
    high: Position
    watermark_type: type[Watermark]
    type_name: ClassVar[str] = "high_watermark"
    version: ClassVar[int] = 1

    def verify_in(self, store: StateStore) -> bool:
        """True if the stored watermark of the partition has reached the position."""
        state = store.load_dataset_states(self.job, [self.dataset_urn]).get(self.dataset_urn)
        if state is None or state.watermark is None or not isinstance(state.watermark, self.watermark_type):
            return False
        reached: Any = state.watermark.components().get(self.partition)
        return reached is not None and bool(reached >= self.high)

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "dataset_urn": self.dataset_urn,
            "partition": self.partition,
            "high": self.watermark_type.position_to_json(self.high),
            "watermark_type": self.watermark_type.type_name,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> HighWatermarkStep:
        """Read the fields of `to_json`; raises KeyError, TypeError, ValueError or WatermarkTypeError."""
        kind = watermark_type(fields["watermark_type"])
        high = kind.position_from_json(fields["high"])
        return cls(str(fields["job"]), str(fields["dataset_urn"]), str(fields["partition"]), high, kind)

    def describe(self) -> str:
        name = f"{self.dataset_urn}:{self.partition}" if self.partition else self.dataset_urn
        return f"set the high watermark for {name} = {self.watermark_type.position_to_json(self.high)}"


@dataclass(frozen=True, slots=True)
class DatasetStateStep:
    """Sets the state of a dataset to `after`.

    Source: gobblin-runtime `DatasetStateCommitStep`. Differs: a compare-and-swap inside the commit transaction, never
    an unconditional write.
    """

    after: DatasetState
    type_name: ClassVar[str] = "dataset_state"
    version: ClassVar[int] = 1

    def verify_in(self, store: StateStore) -> bool:
        """True if the store holds this state, or the state of a later commit."""
        state = store.load_dataset_states(self.after.job, [self.after.dataset_urn]).get(self.after.dataset_urn)
        return state is not None and (state.version > self.after.version or state == self.after)

    def to_json(self) -> dict[str, Any]:
        return {"after": to_document(self.after)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> DatasetStateStep:
        """Return the step from the fields of `to_json`; raises KeyError or CorruptRecordError."""
        return cls(from_document(DatasetState, fields["after"]))

    def describe(self) -> str:
        return f"set the state of {self.after.dataset_urn} to version {self.after.version}"


@dataclass(frozen=True, slots=True)
class WriteManifestStep:
    """Writes the manifest of a snapshot, for readers that have no store.

    It may only follow COMMIT; before it, a reader would see unpublished files. So no sequence stores this step: the
    committed snapshot determines its manifest, and recovery writes a missing one.

    Source: none; the original has no manifests.
    """

    output_root: str
    job: str
    dataset_urn: str
    snapshot: int
    type_name: ClassVar[str] = "write_manifest"
    version: ClassVar[int] = 1

    def verify(self, storage: Storage) -> bool:
        """True if the manifest exists; manifests appear complete or not at all."""
        return storage.size(self._path) is not None

    def describe(self) -> str:
        return f"write the manifest {self._path}"

    @property
    def _path(self) -> str:
        return manifest_path(self.output_root, self.job, self.dataset_urn, self.snapshot)


def watermark_steps(sequence: CommitSequence) -> tuple[HighWatermarkStep, ...]:
    """Return one step per component of the watermark that a sequence will set; empty if it sets none."""
    mark = sequence.after.watermark
    if mark is None:
        return ()
    return tuple(
        HighWatermarkStep(sequence.job, sequence.dataset_urn, name, high, type(mark))
        for name, high in sorted(mark.components().items())
    )
