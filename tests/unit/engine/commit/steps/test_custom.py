from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.errors import InvalidSpecError, UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.steps import check_own_step, custom
from gobblin_dagster.engine.project import open_project
from tests.unit.engine.jobs import job_spec, project, run

HERE = __name__


@dataclass(frozen=True)
class TraceStep:
    """Appends to a file when executed, so that a test sees order and count; fails while a file lies in its way."""

    root: str
    label: str
    type_name: ClassVar[str] = "test_trace"
    version: ClassVar[int] = 1

    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        label: str

    @classmethod
    def plan(cls, options: Options, sequence: CommitSequence) -> TraceStep:
        return cls(sequence.output_root, options.label)

    def verify(self, storage: Storage) -> bool:
        return self.label in self._done()

    def execute(self, storage: Storage) -> None:
        if Path(self.root, "in_the_way").exists():
            raise PermissionError(13, "something is in the way", self.root)
        published = [path for path in Path(self.root).rglob("*.parquet") if "_gobblin" not in path.parts]
        with Path(self.root, "trace").open("a") as file:
            file.write(f"{self.label} {bool(published)}\n")

    def _done(self) -> list[str]:
        file = Path(self.root, "trace")
        return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []

    def to_json(self) -> dict[str, Any]:
        return {"root": self.root, "label": self.label}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TraceStep:
        return cls(fields["root"], fields["label"])

    def describe(self) -> str:
        return f"trace {self.label}"


class NoStep:
    """Offers nothing."""


def _job(*labels: str) -> Any:
    return job_spec({"a": {"rows": 5}}, commit={"steps": [{"type": f"{HERE}:TraceStep", "label": x} for x in labels]})


def test_own_steps_run_in_order_after_the_files_are_in_place(tmp_path: Path) -> None:
    assert run(tmp_path, _job("first", "second")).exit_code == 0
    assert (tmp_path / "lake/trace").read_text() == "first True\nsecond True\n"


def test_own_step_that_fails_is_done_by_the_next_run_and_what_was_done_is_not_repeated(tmp_path: Path) -> None:
    job = _job("first", "second")
    (tmp_path / "lake").mkdir()
    blocker = tmp_path / "lake/in_the_way"
    blocker.touch()
    assert run(tmp_path, job).exit_code == 1
    (tmp_path / "lake/trace").write_text("first True\n")
    blocker.unlink()
    result = run(tmp_path, job)
    assert [done.state for done in result.recovered] == [SequenceState.COMMITTED]
    assert (tmp_path / "lake/trace").read_text() == "first True\nsecond True\n"


def test_sequence_with_an_own_step_that_loses_its_files_waits_for_a_person(tmp_path: Path) -> None:
    job = _job("first")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/in_the_way").touch()
    run(tmp_path, job)
    for path in (tmp_path / "lake").rglob("*.parquet"):
        path.unlink()
    assert [done.state for done in run(tmp_path, job).recovered] == [SequenceState.QUARANTINED]


def test_step_of_a_package_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def installed(group: str) -> EntryPoints:
        return EntryPoints([EntryPoint("tracer", f"{HERE}:TraceStep", group)])

    monkeypatch.setattr(custom, "entry_points", installed)
    job = job_spec({"a": {"rows": 5}}, commit={"steps": [{"type": "tracer", "label": "here"}]})
    assert run(tmp_path, job).exit_code == 0
    assert (tmp_path / "lake/trace").read_text() == "here True\n"


@pytest.mark.parametrize(
    ("type_name", "options", "problem"),
    [
        ("tracer", {}, "There is no commit step 'tracer'"),
        ("no_such_module:X", {}, "cannot be loaded"),
        (f"{HERE}:Missing", {}, "cannot be loaded"),
        (f"{HERE}:NoStep", {}, "lacks plan, from_json, verify, execute"),
        (f"{HERE}:TraceStep", {}, "Field required"),
        (f"{HERE}:TraceStep", {"label": "x", "colour": 1}, "Extra inputs"),
    ],
)
def test_declaration_that_cannot_work_is_told(type_name: str, options: dict[str, Any], problem: str) -> None:
    [(_, told)] = check_own_step(type_name, options)
    assert problem in told


def test_fault_is_told_with_its_place_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "gobblin.yaml").write_text("project: p\n")
    (tmp_path / "jobs/j.yaml").write_text(
        "job: j\nsource: {type: files, path: '{dataset}.csv', format: {type: csv, columns: {id: int64}}}\n"
        "extract: {namespace: n, table: t}\noutput: {path: lake}\n"
        f"commit:\n  steps:\n    - type: {HERE}:TraceStep\n      labl: x\n"
    )
    with pytest.raises(InvalidSpecError, match=r"commit\.steps\[0\]\.labl"):
        open_project(tmp_path)


def test_unknown_step_stops_the_job_before_anything_is_read(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}}, commit={"steps": [{"type": "tracer"}]})
    with pytest.raises(UsageError, match="no commit step"):
        run(tmp_path, job)
    store = project(tmp_path, job).open_store()
    assert store.load_sequences(states=set(SequenceState)) == []
    store.close()


@dataclass(frozen=True)
class UndoableStep(TraceStep):
    """A trace that means nothing without the files, so that the sequence may be undone with it in place."""

    type_name: ClassVar[str] = "test_undoable_trace"
    is_undoable: ClassVar[bool] = True


@dataclass(frozen=True)
class StrayStep(TraceStep):
    """Says that it changes a file outside of the output."""

    type_name: ClassVar[str] = "test_stray"

    @property
    def output_paths(self) -> tuple[str, ...]:
        return (f"{self.root}/../elsewhere.csv",)


@dataclass(frozen=True)
class MistakenStep(TraceStep):
    type_name: ClassVar[str] = "test_mistaken"

    def is_undoable(self) -> bool:
        return True


def _job_with(step: type[TraceStep]) -> Any:
    return job_spec({"a": {"rows": 5}}, commit={"steps": [{"type": f"{HERE}:{step.__name__}", "label": "x"}]})


def test_sequence_with_an_own_step_that_says_it_can_be_undone_is_undone_and_read_again(tmp_path: Path) -> None:
    job = _job_with(UndoableStep)
    (tmp_path / "lake").mkdir()
    blocker = tmp_path / "lake/in_the_way"
    blocker.touch()
    run(tmp_path, job)
    for path in (tmp_path / "lake").rglob("*.parquet"):
        path.unlink()
    blocker.unlink()
    result = run(tmp_path, job)
    assert [done.state for done in result.recovered] == [SequenceState.ABORTED]
    assert (result.exit_code, result.datasets[0].rows_read) == (0, 5)


def test_step_that_says_it_changes_what_lies_outside_of_the_output_is_refused(tmp_path: Path) -> None:
    [dataset] = run(tmp_path, _job_with(StrayStep)).datasets
    assert [failure.code for failure in dataset.failures] == ["step-refused"]
    assert not list((tmp_path / "lake").glob("test/**/*.parquet"))
    assert not (tmp_path / "lake/trace").exists()


def test_trait_of_another_type_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    [dataset] = run(tmp_path, _job_with(MistakenStep)).datasets
    assert "MistakenStep.is_undoable is <bound method" in dataset.failures[0].message
    assert not list((tmp_path / "lake").glob("test/**/*.parquet"))
