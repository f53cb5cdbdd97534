"""The API of the exactly-once design over a state store: its own example is run as it stands there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.errors import StagedFileLostError, StepRefusedError, UsageError
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.engine.commit.manifest import list_manifests
from gobblin_dagster.engine.commit.step_store import CommitStepStore, SequenceBuilder
from gobblin_dagster.engine.commit.steps.transaction import DatasetStateStep, HighWatermarkStep
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.conformance.state_store.opening import ManualClock, OpensStore, StoreMaker
from gobblin_dagster.testing.faults import Fault, FaultPoints, Halted, counted_storage, counted_store, halt_after

JOB, URN = "kafka_hdfs", "MyTopic"
FILES = ("2015-12-09/1.avro", "2015-12-09/2.avro", "2015-12-10/1.avro")


class Lake:
    """The folders of the design's example: `task-output` beside `job-output`, or in the corner where jobs stage."""

    def __init__(self, root: Path, *, is_inside: bool = False) -> None:
        self.root = root / "job-output"
        self.task_output = (self.root / "_gobblin" if is_inside else root) / "task-output" / URN
        self.job_output = self.root / URN

    def extract(self) -> None:
        """Write the files of a task."""
        for name in FILES:
            file = self.task_output / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"records of {name}")

    def steps(self, store: StateStore) -> CommitStepStore:
        """Return the step store over a state store."""
        return CommitStepStore(store, LocalStorage(durable=False), str(self.root), clock=ManualClock())

    def put_all(self, builder: SequenceBuilder) -> SequenceBuilder:
        """Add all steps of the example."""
        for name in FILES:
            builder.rename(str(self.task_output / name), str(self.job_output / name))
        return builder.high_watermark("0", 100).high_watermark("1", 200)

    def published(self) -> list[str]:
        """Return the published files, relative to their folder."""
        return sorted(str(path.relative_to(self.job_output)) for path in self.job_output.rglob("*.avro"))


class StepStoreConformance(OpensStore):
    """Tests of `CommitStepStore` over your own state store; override the same as for `StateStoreConformance`."""

    protocol = "gobblin_dagster.engine.commit.step_store.CommitStepStore"

    @pytest.fixture(params=["beside", "inside"])
    def lake(self, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
        """Return the folders, with the files of a task."""
        made = Lake(tmp_path, is_inside=request.param == "inside")
        made.extract()
        return made

    def test_example_of_the_design(self, lake: Lake, store: StateStore) -> None:
        """The exactly-once design's example runs: files in place, watermarks set; a second call changes nothing."""
        steps = lake.steps(store)
        assert steps.create(JOB)
        sequence = lake.put_all(steps.begin(JOB, URN)).end()
        assert [one.step.describe().split(" (")[0] for one in sequence.steps] == [
            *(f"rename {lake.task_output / name} to {lake.job_output / name}" for name in FILES),
            "set the high watermark for MyTopic:0 = 100",
            "set the high watermark for MyTopic:1 = 200",
        ]
        assert not any(one.verify() for one in sequence.steps)
        assert sequence.commit()
        assert all(one.verify() for one in sequence.steps)
        assert lake.published() == sorted(FILES)
        assert store.load_dataset_states(JOB)[URN].watermark == CompositeWatermark({"0": 100, "1": 200})
        assert not lake.task_output.joinpath("2015-12-09").exists()
        assert not steps.exists(JOB, URN)
        assert sequence.commit()  # done twice, it changes nothing
        assert store.load_dataset_states(JOB)[URN].version == 1

    def test_next_run_finishes_what_a_crash_left_and_moves_nothing_twice(self, lake: Lake, maker: StoreMaker) -> None:
        """A commit that broke off is finished by another process that has nothing but the store."""
        steps = lake.steps(maker.open())
        sequence = lake.put_all(steps.begin(JOB, URN)).end()
        blocker = lake.job_output
        blocker.parent.mkdir(exist_ok=True)
        blocker.write_text("a file where the folder should be")
        assert not sequence.commit()
        assert steps.exists(JOB, URN)
        blocker.unlink()
        later = lake.steps(maker.open())  # another process: nothing but the store tells it
        assert later.exists(JOB, URN)
        assert len(later.get_commit_sequence(JOB, URN).steps) == 5
        assert later.get_commit_sequence(JOB, URN).commit()
        assert lake.published() == sorted(FILES)

    @pytest.mark.parametrize("begin", [lambda s: s.begin(JOB, URN), lambda s: s.create(JOB)], ids=["dataset", "store"])
    def test_next_run_finishes_what_a_crash_left_after_the_commit(
        self, lake: Lake, maker: StoreMaker, begin: Callable[[CommitStepStore], object]
    ) -> None:
        """A crash between COMMIT and manifest: the next run writes the manifest and deletes empty task-output."""
        killed = FaultPoints(Fault(1, halt_after, "store.commit"))
        store, storage = maker.open(), LocalStorage(durable=False)
        steps = CommitStepStore(counted_store(store, killed), counted_storage(storage, killed), str(lake.root))
        with pytest.raises(Halted):
            lake.put_all(steps.begin(JOB, URN)).end().commit()
        store.load_leases(JOB)[URN].owner.note_end()
        assert list_manifests(storage, str(lake.root), JOB, URN) == []
        next_task = lake.task_output / FILES[2]
        next_task.write_text("of the next task")
        begin(lake.steps(maker.open()))  # another process
        assert list_manifests(storage, str(lake.root), JOB, URN) == [1]
        assert list(lake.task_output.rglob("*")) == [next_task.parent, next_task]
        assert not store.load_leases(JOB)

    def test_dataset_whose_redo_fails_is_skipped_and_others_go_on(self, lake: Lake, store: StateStore) -> None:
        """A sequence whose third redo failed is set aside; other datasets go on."""
        steps = lake.steps(store)
        lake.put_all(steps.begin(JOB, URN)).end()
        lake.job_output.parent.mkdir(exist_ok=True)
        lake.job_output.write_text("a file where the folder should be")
        assert [steps.get_commit_sequence(JOB, URN).commit() for _ in range(5)] == [False] * 5
        [stored] = store.load_sequences(states=set(SequenceState))
        assert (stored.state, stored.redo_failures) == (SequenceState.QUARANTINED, 3)
        assert steps.begin(JOB, "other").high_watermark("p", 1).end().commit()
        assert steps.remove(JOB, URN)
        assert not steps.exists(JOB, URN)

    def test_task_output_is_deleted_but_for_what_is_no_file_of_the_sequence(
        self, store: StateStore, tmp_path: Path
    ) -> None:
        lake = Lake(tmp_path)
        lake.extract()
        foreign = lake.task_output / "2015-12-10" / "2.avro"
        foreign.write_text("of another dataset")
        steps = lake.steps(store)
        assert lake.put_all(steps.begin(JOB, URN)).end().commit()
        assert [path for path in (tmp_path / "task-output").rglob("*") if path.is_file()] == [foreign]
        target = lake.job_output / "2015-12-10" / "2.avro"
        assert steps.begin(JOB, "other").rename(str(foreign), str(target)).end().commit()
        assert not (tmp_path / "task-output").exists()
        assert lake.published() == sorted([*FILES, "2015-12-10/2.avro"])

    @pytest.mark.parametrize(
        ("source", "target", "problem"),
        [
            (
                "job-output/MyTopic/1.avro",
                "job-output/MyTopic/2.avro",
                "a staging folder must lie inside .*, or outside ",
            ),
            ("1.avro", "job-output/1.avro", "a staging folder must lie inside .*, or outside "),
            ("task-output/1.avro", "elsewhere/1.avro", "the target must lie below "),
        ],
        ids=["published", "around", "target"],
    )
    def test_step_that_could_never_be_committed_is_refused_when_it_is_put(
        self, store: StateStore, tmp_path: Path, source: str, target: str, problem: str
    ) -> None:
        file = tmp_path / source
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("records")
        steps = Lake(tmp_path).steps(store)
        with pytest.raises(StepRefusedError, match=problem):
            steps.put(JOB, URN, steps.rename_step(str(file), str(tmp_path / target)))
        assert not steps.exists(JOB, URN)

    def test_step_of_another_dataset_is_refused_when_it_is_put(self, store: StateStore, lake: Lake) -> None:
        """A sequence moves the watermark of its own dataset only."""
        steps = lake.steps(store)
        for job, urn in ((JOB, "other"), ("other", URN)):
            with pytest.raises(StepRefusedError, match="each dataset has its own sequence"):
                steps.put(JOB, URN, HighWatermarkStep(job, urn, "0", 5, CompositeWatermark))
        assert not steps.exists(JOB, URN)

    def test_file_that_changed_after_it_was_put_is_not_published(self, store: StateStore, tmp_path: Path) -> None:
        """A file with other bytes than those that were put is not published, also if it has the same size."""
        source, target = tmp_path / "task-output/1", tmp_path / "job-output/1"
        source.parent.mkdir()
        source.write_text("records")
        sequence = Lake(tmp_path).steps(store).begin(JOB, URN).rename(str(source), str(target)).end()
        source.write_text("RECORDS")
        assert not sequence.commit()
        assert (target.exists(), source.read_text()) == (False, "RECORDS")
        assert JOB not in store.list_jobs() or URN not in store.load_dataset_states(JOB)

    def test_folder_in_the_place_of_a_file_keeps_the_file_where_it_is(self, store: StateStore, tmp_path: Path) -> None:
        """A target that is a folder is refused; the file that was to be moved there stays."""
        source, target = tmp_path / "task-output/1", tmp_path / "job-output/1"
        source.parent.mkdir()
        target.mkdir(parents=True)
        source.write_text("records")
        steps = Lake(tmp_path).steps(store)
        assert not steps.begin(JOB, URN).rename(str(source), str(target)).end().commit()
        [stored] = store.load_sequences(states=set(SequenceState))
        assert stored.state is SequenceState.QUARANTINED
        assert "the target exists and is no file" in stored.reason
        assert source.read_text() == "records"

    def test_two_files_for_one_place_are_refused_before_any_is_moved(self, store: StateStore, lake: Lake) -> None:
        """Two moves to one target are refused when the sequence is ended, not when it is committed."""
        builder = lake.steps(store).begin(JOB, URN)
        for name in FILES[:2]:
            builder.rename(str(lake.task_output / name), str(lake.job_output / FILES[0]))
        with pytest.raises(StepRefusedError, match="another step of the sequence has the same target"):
            builder.end()
        assert not lake.job_output.exists()

    def test_sequence_that_ended_commits_no_steps_of_the_next_one(self, lake: Lake, store: StateStore) -> None:
        """A second `commit` of a sequence that has ended leaves the next one alone, which may not be complete yet."""
        steps = lake.steps(store)
        done = lake.put_all(steps.begin(JOB, URN)).end()
        removed = steps.begin(JOB, "other").high_watermark("0", 5).end()
        assert (done.commit(), steps.remove(JOB, "other")) == (True, True)
        for urn in (URN, "other"):
            steps.begin(JOB, urn).high_watermark("0", 300)
        assert (done.commit(), removed.commit()) == (True, False)
        assert (steps.exists(JOB, URN), steps.exists(JOB, "other")) == (True, True)
        assert store.load_dataset_states(JOB)[URN].watermark == CompositeWatermark({"0": 100, "1": 200})
        with pytest.raises(StepRefusedError, match="another step of the sequence sets this watermark"):
            steps.put(JOB, URN, HighWatermarkStep(JOB, URN, "0", 250, CompositeWatermark))

    def test_file_with_equal_bytes_at_the_target_is_not_taken_for_ours(self, lake: Lake, store: StateStore) -> None:
        """A target that was there before is refused, also if it holds the same bytes: readers would miss one file."""
        steps = lake.steps(store)
        assert lake.put_all(steps.begin(JOB, URN)).end().commit()
        lake.extract()
        assert not lake.put_all(steps.begin(JOB, "other")).end().commit()
        assert steps.remove(JOB, "other")
        assert len(list(lake.task_output.rglob("*.avro"))) == len(FILES)
        assert "other" not in store.load_dataset_states(JOB)

    def test_file_that_was_written_again_is_not_undone(self, lake: Lake, store: StateStore) -> None:
        """Undoing a sequence deletes no source that holds other bytes now: the next task has written it."""
        steps = lake.steps(store)
        sequence = lake.put_all(steps.begin(JOB, URN)).end()
        lake.job_output.parent.mkdir(exist_ok=True)
        lake.job_output.write_text("a file where the folder should be")
        assert not sequence.commit()
        lake.job_output.unlink()
        (lake.task_output / FILES[0]).write_text("records of the next task")
        assert steps.remove(JOB, URN)
        assert [path.read_text() for path in lake.task_output.rglob("*.avro")] == ["records of the next task"]

    def test_watermark_moves_on_from_where_it_was(self, store: StateStore, lake: Lake) -> None:
        """A watermark moves on from where the store has it, and never back."""
        steps = lake.steps(store)
        for high in (100, 150):
            assert steps.begin(JOB, URN).high_watermark("0", high).end().commit()
        assert store.load_dataset_states(JOB)[URN].committed.ranges == {"0": ((100, 150),)}
        mark = HighWatermarkStep(JOB, URN, "0", 150, CompositeWatermark)
        assert mark.verify_in(store)
        assert not replace(mark, high=151).verify_in(store)
        assert not replace(mark, partition="1").verify_in(store)
        assert not steps.begin(JOB, URN).high_watermark("0", 120).end().commit()  # never back
        assert mark.verify_in(store)

    def test_time_of_commits_grows_although_the_clock_does_not(self, store: StateStore, lake: Lake) -> None:
        """Each commit of a dataset has a later time than the one before it, also if a clock was set back."""
        times = []
        for high in (100, 150):
            assert lake.steps(store).begin(JOB, URN).high_watermark("0", high).end().commit()
            times.append(store.load_dataset_states(JOB)[URN].updated_at)
        assert times[0] < times[1]

    def test_dataset_state_step_sets_the_whole_state(self, store: StateStore, lake: Lake) -> None:
        """A step may set the whole state of a dataset."""
        steps = lake.steps(store)
        assert steps.begin(JOB, URN).high_watermark("0", 7).end().commit()
        after = replace(store.load_dataset_states(JOB)[URN], version=2, run_id="by the original's step")
        step = DatasetStateStep(after)
        assert not step.verify_in(store)
        assert steps.begin(JOB, URN).step(step).end().commit()
        assert store.load_dataset_states(JOB)[URN] == after
        assert step.verify_in(store)
        assert DatasetStateStep.from_json(step.to_json()) == step

    def test_sequence_keeps_what_the_state_holds_besides_the_watermark(self, store: StateStore, lake: Lake) -> None:
        """A commit changes the watermark and keeps all else that the state holds."""
        steps = lake.steps(store)
        assert steps.begin(JOB, URN).high_watermark("0", 7).end().commit()
        rich = replace(
            store.load_dataset_states(JOB)[URN],
            version=2,
            schemas={"main": "n: int64"},
            generation=3,
            origin={"topic": "1"},
            row_marks={"0": RowMark(6, "a")},
        )
        assert steps.begin(JOB, URN).step(DatasetStateStep(rich)).end().commit()
        assert steps.begin(JOB, URN).high_watermark("0", 9).end().commit()
        after = store.load_dataset_states(JOB)[URN]
        assert after.watermark == CompositeWatermark({"0": 9})
        assert (after.schemas, after.generation, after.origin) == (rich.schemas, rich.generation, rich.origin)
        assert after.row_marks == rich.row_marks

    def test_create_exists_and_remove_tell_what_was_there(self, store: StateStore, lake: Lake) -> None:
        """`create`, `exists` and `remove` tell what was there before."""
        steps = lake.steps(store)
        assert (steps.create(JOB), steps.create(JOB)) == (True, False)
        assert (steps.create(JOB, URN), steps.create(JOB, URN), steps.exists(JOB, URN)) == (True, False, True)
        assert (steps.remove(JOB, URN), steps.remove(JOB, URN), steps.exists(JOB, URN)) == (True, False, False)
        assert steps.put(JOB, URN, steps.rename_step(str(lake.task_output / FILES[0]), str(lake.job_output / FILES[0])))
        assert steps.remove(JOB)
        assert not steps.exists(JOB, URN)
        assert not steps.remove("never_made")

    @pytest.mark.parametrize(
        "remove", [lambda s: s.remove(JOB, URN), lambda s: s.remove(JOB)], ids=["dataset", "store"]
    )
    def test_removing_a_stored_sequence_undoes_it(
        self, lake: Lake, store: StateStore, remove: Callable[[CommitStepStore], bool]
    ) -> None:
        """`remove` of a sequence that is stored undoes it; meanwhile no other can begin."""
        steps = lake.steps(store)
        sequence = lake.put_all(steps.begin(JOB, URN)).end()
        lake.job_output.parent.mkdir(exist_ok=True)
        lake.job_output.write_text("a file where the folder should be")
        assert not sequence.commit()
        assert not steps.put(JOB, URN, HighWatermarkStep(JOB, URN, "0", 1, CompositeWatermark))
        with pytest.raises(UsageError, match="Commit steps wait"):
            steps.begin(JOB, URN)
        lake.job_output.unlink()
        assert remove(steps)
        assert not list(lake.task_output.rglob("*.avro"))
        assert [one.state for one in store.load_sequences(states=set(SequenceState))] == [SequenceState.ABORTED]

    def test_empty_urn_is_legal(self, lake: Lake, store: StateStore) -> None:
        """The empty dataset.urn is legal."""
        steps = lake.steps(store)
        assert lake.put_all(steps.begin(JOB)).end().commit()
        assert lake.published() == sorted(FILES)
        assert set(store.load_dataset_states(JOB)) == {""}

    def test_single_steps_may_be_executed_but_for_watermarks(self, lake: Lake, store: StateStore) -> None:
        steps = lake.steps(store)
        sequence = lake.put_all(steps.begin(JOB, URN)).end()
        lake.job_output.joinpath("2015-12-09").mkdir(parents=True)
        assert sequence.steps[0].execute()
        assert sequence.steps[0].is_completed()
        with pytest.raises(StepRefusedError, match="only `commit` of the sequence"):
            sequence.steps[3].execute()
        assert sequence.commit()
        assert lake.published() == sorted(FILES)

    def test_older_file_of_the_same_name_is_never_taken_for_ours(self, lake: Lake, store: StateStore) -> None:
        older = lake.job_output / FILES[0]
        older.parent.mkdir(parents=True)
        older.write_text("older")
        steps = lake.steps(store)
        assert not lake.put_all(steps.begin(JOB, URN)).end().commit()
        assert older.read_text() == "older"
        assert store.load_dataset_states(JOB) == {}

    def test_what_cannot_be_is_refused(self, lake: Lake, store: StateStore) -> None:
        steps = lake.steps(store)
        with pytest.raises(UsageError, match="is not a store name"):
            steps.create("../elsewhere")
        with pytest.raises(UsageError, match="No commit steps wait"):
            steps.get_commit_sequence(JOB, URN)
        with pytest.raises(StagedFileLostError):
            steps.begin(JOB, URN).rename("/nowhere", "/anywhere")
