from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from gobblin_dagster.cli.render.console import bytes_of, console, dataset_name, print_table
from gobblin_dagster.cli.render.progress import Bars, Lines, ProgressMode, Silence, progress_view
from gobblin_dagster.cli.render.run import (
    RunDisplay,
    audit_text,
    next_step,
    recovery_line,
    recovery_summary,
    summary_line,
)
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.task_state import PolicyOutcome, PolicyResult, TaskFailure, TaskState, WorkingState
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan
from gobblin_dagster.engine.results import Audit, DatasetResult, RecoveredDataset, RunResult

START = datetime(2026, 1, 1, tzinfo=UTC)


def terminal(width: int) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(
        file=stream, width=width, force_terminal=True, color_system=None, highlight=False, markup=False
    ), stream


@pytest.mark.parametrize(
    ("urn", "shown"), [("", "(whole job)"), ("日本 ü/ñ", "日本 ü/ñ"), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J")]
)
def test_names_of_datasets_cannot_steer_a_terminal(urn: str, shown: str) -> None:
    assert dataset_name(urn) == shown


def plan_of(units_by_dataset: Mapping[str, int]) -> JobPlan:
    def plan(urn: str, units: int) -> DatasetPlan:
        low, high = LongWatermark(0), LongWatermark(10)
        work = tuple(WorkUnit(f"{urn}-{n}", urn, low, high, size_bytes=2048, files=1) for n in range(units))
        return DatasetPlan(urn, "c" * 32, 0, low, high, work)

    return JobPlan("job", "run", tuple(plan(urn, units) for urn, units in units_by_dataset.items()), branches=("main",))


def task(urn: str, rows: int, state: WorkingState = WorkingState.SUCCESSFUL) -> TaskState:
    mark = LongWatermark(0)
    return TaskState("wu", urn, state, "attempt", mark, mark, mark, rows_read=rows)


def run_result(*datasets: DatasetResult, status: RunStatus = RunStatus.SUCCEEDED) -> RunResult:
    return RunResult("job", "run", status, START, START + timedelta(seconds=2.5), datasets)


def test_audit_text_is_an_equation_where_each_branch_takes_every_row() -> None:
    audit = Audit(
        "a", 120, {"all": 100, "masked": 100, "quarantine": 20}, {"all": 100, "masked": 100, "quarantine": 20}
    )
    assert audit_text(audit) == "0 lost, 0 duplicated (source rows 120 = published 100 + quarantined 20)"


def test_audit_text_names_each_branch_where_they_differ_and_what_is_wrong() -> None:
    audit = Audit("a", 1200, {"eu": 700, "us": 501}, {"eu": 701, "us": 500})
    assert audit_text(audit) == "1 lost, 1 duplicated (source rows 1,200; published eu 700 of 701, us 501 of 500)"


def test_rows_that_only_a_table_holds_are_not_called_counted() -> None:
    recovered = RecoveredDataset("seq", "a", "committed", steps_redone=1, audit=Audit("a", 12, {}, {}))
    assert recovery_line(recovered).endswith("12 source rows; what a table or topic holds of them is not counted again")
    assert "counted again" not in recovery_summary([recovered])


def test_recovery_line_says_what_was_done_or_why_not() -> None:
    done = RecoveredDataset("seq", "a", "committed", steps_found_done=7, steps_redone=1)
    assert recovery_line(done) == "recovered a: 7 steps found done, 1 done now"
    stuck = RecoveredDataset("seq", "", "quarantined", reason="a file is lost")
    assert recovery_line(stuck) == "sequence seq of (whole job) is quarantined: a file is lost"


def test_recovery_summary_adds_up() -> None:
    audits = [Audit("a", 10, {"m": 9}, {"m": 10}), Audit("b", 10, {"m": 12}, {"m": 10})]
    datasets = [RecoveredDataset("s", audit.dataset_urn, "committed", audit=audit) for audit in audits]
    assert recovery_summary([*datasets, RecoveredDataset("s", "c", "aborted")]) == (
        "Recovered what an earlier run left: 3 commit sequences (1 aborted, 2 committed); "
        "1 lost, 2 duplicated in 2 datasets counted again"
    )


def test_sequence_whose_manifest_was_tried_again_counts_once() -> None:
    without = [RecoveredDataset("s", "a", "committed", manifest="missing")] * 2
    assert recovery_summary(without) == "Recovered what an earlier run left: 1 commit sequence (1 committed)"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_run_display_fits_its_terminal_with_long_names_and_many_datasets(width: int) -> None:
    console, stream = terminal(width)
    names = [f"warehouse/region-{n:03d}/some-table-with-a-rather-long-name-{n:03d}" for n in range(30)]
    with RunDisplay(console, Bars(console)) as display:
        display.planned(plan_of(dict.fromkeys(names, 2)))
        display.spark_starting()
        for number, name in enumerate(names):
            display.task_done(task(name, 1_234_567), number + 1, 60)
        display.extracted()
        display.finished(
            run_result(
                *(
                    DatasetResult(
                        name,
                        DatasetOutcome.COMMITTED,
                        low=LongWatermark(0),
                        expected_high=LongWatermark(10**12),
                        actual_high=LongWatermark(10**12),
                        rows_read=123_456_789,
                    )
                    for name in names
                )
            )
        )
    redrawn = stream.getvalue().replace("\x1b[2K", "\n")  # bars are drawn over themselves
    lines = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", redrawn).splitlines()
    assert max(map(len, lines)) <= width
    assert "... 10 more" in stream.getvalue()


def test_run_display_shows_checks_failures_and_notes_bounded() -> None:
    console, stream = terminal(120)
    outcomes = (
        PolicyOutcome("row_count", "main", PolicyResult.PASSED, True, "5 of 5"),
        PolicyOutcome("row_count", "masked", PolicyResult.FAILED, True, "4 of 5"),
    )
    failures = tuple(TaskFailure("extract", f"row {n} is short") for n in range(9))
    dataset = DatasetResult(
        "a",
        DatasetOutcome.FAILED,
        low=LongWatermark(3),
        rejected={"cancelled": 12, "late": 0},
        rows_quarantined=12,
        policies=outcomes,
        failures=failures,
        notes=("2 files came late",),
    )
    RunDisplay(console, Silence()).finished(run_result(dataset, status=RunStatus.FAILED))
    out = stream.getvalue()
    assert "rejected by cancelled: 12 rows set aside in 1 dataset\n" in out
    assert "rejected by late: 0 rows set aside\n" in out
    assert "task policy row_count: 1 passed, 1 failed\n" in out
    assert "quarantine: 12 rows" in out
    assert "a: error[extract]: row 4 is short" in out
    assert "row 5 is short" not in out
    assert "... 4 more failures of this dataset" in out
    assert "a: 2 files came late" in out
    assert "stays at 3" in out


def test_summary_counts_rows_that_no_branch_takes() -> None:
    all_taken = DatasetResult("a", DatasetOutcome.COMMITTED, rows_read=9, rows_by_branch={"eu": 9})
    four_untaken = DatasetResult("a", DatasetOutcome.COMMITTED, rows_read=9, rows_by_branch={"eu": 5}, rows_untaken=4)
    assert "9 rows read, 9 published (0 B), 0 quarantined; " in summary_line(run_result(all_taken))
    assert "5 published (0 B), 0 quarantined, 4 taken by no branch; " in summary_line(run_result(four_untaken))


@pytest.mark.parametrize(
    ("outcome", "status", "words"),
    [
        (DatasetOutcome.COMMITTED, RunStatus.SUCCEEDED, "reads only what is new"),
        (DatasetOutcome.IDLE, RunStatus.SUCCEEDED, "read by the next `gobblin run`"),
        (DatasetOutcome.BUSY, RunStatus.FAILED, "wait for the other run"),
        (DatasetOutcome.QUARANTINED, RunStatus.FAILED, "`gobblin commit list`"),
        (DatasetOutcome.CANCELLED, RunStatus.INTERRUPTED, "goes on where this run stopped"),
    ],
)
def test_next_step_fits_the_end_of_the_run(outcome: DatasetOutcome, status: RunStatus, words: str) -> None:
    assert words in next_step([run_result(DatasetResult("a", outcome), status=status)])


def test_next_step_names_jobs_that_read_everything_in_each_run() -> None:
    done = run_result(DatasetResult("a", DatasetOutcome.COMMITTED))
    assert "reads everything again;" in next_step([done], [done.job])
    other = dataclasses.replace(done, job="other")
    assert f"reads what is new, and all of {done.job};" in next_step([done, other], [done.job])


def test_next_step_names_the_sequence_that_this_run_left_for_a_person() -> None:
    refused = DatasetResult(
        "a", DatasetOutcome.FAILED, failures=(TaskFailure("quarantined", "a column has another type"),)
    )
    assert "`gobblin commit list`" in next_step([run_result(refused, status=RunStatus.FAILED)])


def test_lines_few_datasets_have_a_line_each_with_failures() -> None:
    console, stream = terminal(100)
    lines = Lines(console)
    lines.start(plan_of({"a": 2, "b": 1}))
    lines.task_done(task("a", 5), 1, 3)
    lines.task_done(task("a", 0, WorkingState.FAILED), 2, 3)
    lines.task_done(task("b", 1), 3, 3)
    lines.stop()
    assert stream.getvalue().splitlines() == [
        "Spark starts for 3 work units",
        "read a: 5 rows, 1 work unit failed",
        "read b: 1 row",
    ]


def test_lines_many_work_units_have_twenty_lines_at_most() -> None:
    console, stream = terminal(100)
    lines = Lines(console)
    names = [f"d{number}" for number in range(1000)]
    lines.start(plan_of(dict.fromkeys(names, 1)))
    for number, name in enumerate(names, 1):
        lines.task_done(task(name, 10), number, 1000)
    printed = stream.getvalue().splitlines()
    assert len(printed) == 21
    assert printed[-1] == "read 1,000 of 1,000 work units (100%), 10,000 rows"


def test_bars_are_bounded() -> None:
    console, stream = terminal(100)
    bars = Bars(console)
    bars.start(plan_of({f"d{number:04d}": 1 for number in range(300)}))
    bars.stop()
    assert "all datasets" in stream.getvalue()
    assert "d0019" in stream.getvalue()
    assert "d0020" not in stream.getvalue()


def test_progress_auto_takes_bars_on_a_terminal_and_lines_elsewhere() -> None:
    assert isinstance(progress_view(ProgressMode.AUTO, terminal(80)[0]), Bars)
    assert isinstance(progress_view(ProgressMode.AUTO, Console(file=io.StringIO())), Lines)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (10_240, "10 KB"),
        (5 << 30, "5.0 GB"),
        (3 << 40, "3.0 TB"),
    ],
)
def test_bytes_of(number: int | None, text: str) -> None:
    assert bytes_of(number) == text


def test_count_takes_the_right_form() -> None:
    assert [count(n, "file") for n in (0, 1, 2000)] == ["0 files", "1 file", "2,000 files"]


def test_table_in_a_pipe_is_plain_and_aligned_by_columns_of_the_screen() -> None:
    stream = io.StringIO()
    print_table(console(stream), {"name": "left", "rows": "right"}, [("中文", "1"), ("a", "1,000")])
    assert stream.getvalue() == "name   rows\n中文      1\na     1,000\n"
    print_table(console(quiet := io.StringIO(), quiet=True), {"name": "left"}, [("a",)])
    assert quiet.getvalue() == ""


def test_datasets_with_the_same_note_share_a_line_and_are_not_called_up_to_date_alone() -> None:
    notes = ("branch 'new' lacks rows.",)
    idle = [DatasetResult(urn, DatasetOutcome.IDLE, actual_high=LongWatermark(1), notes=notes) for urn in "abc"]
    out, stream = terminal(200)
    with RunDisplay(out, Silence()) as display:
        display.planned(JobPlan("job", "run", tuple(DatasetPlan(u, "", 1, None, None, notes=notes) for u in "abc")))
        display.finished(run_result(*idle))
    assert stream.getvalue().count("branch 'new' lacks rows.") == 1
    assert "  a and 2 more datasets: branch 'new' lacks rows.\n" in stream.getvalue()
    assert "nothing to do, 3 datasets up to date, but for their notes (2.5 s)" in stream.getvalue()
