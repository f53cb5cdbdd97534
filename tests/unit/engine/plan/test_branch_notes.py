"""What a plan says of branches that will not hold all rows of a dataset that was committed before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.startpoint import Oldest, Specific
from gobblin_dagster.engine.maintenance.state_change import apply_change, plan_reset
from gobblin_dagster.engine.publishers import branch_homes, make_publishers
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import job_spec, project, run
from tests.unit.engine.plan.test_startpoints import planned, store_of, wish

BY_DAY = {"type": "parquet", "partition_by": ["day"]}


def job(rows: int, *branches: dict[str, Any], **parts: Any) -> JobSpec:
    return job_spec({"a": {"rows": rows}}, fork={"branches": list(branches)}, **parts)


def test_branch_that_is_new_is_told(tmp_path: Path) -> None:
    old, new, counted = {"name": "old"}, {"name": "new"}, {"name": "counted", "publisher": {"type": "noop"}}
    assert planned(tmp_path, job(5, old, new)).notes == ()
    run(tmp_path, job(5, old))
    (note,) = planned(tmp_path, job(8, old, new, counted)).notes
    assert note.startswith("branch 'new' had no part in earlier commits, and gets only rows that were not read yet;")
    assert planned(tmp_path, job(5, old, new)).notes == (note,)  # it is not up to date, though nothing is read
    run(tmp_path, job(8, old, new, counted))
    assert planned(tmp_path, job(9, old, new, counted)).notes == ()


def test_branch_that_never_got_a_row_is_not_new_for_ever(tmp_path: Path) -> None:
    branches = [{"name": "all"}, {"name": "empty"}]
    take = {"type": "sql", "branches": {"all": "true", "empty": "id < 0"}}
    fork = {"operator": take, "branches": branches}
    run(tmp_path, job_spec({"a": {"rows": 5}}, fork=fork))
    assert planned(tmp_path, job_spec({"a": {"rows": 8}}, fork=fork)).notes == ()


@pytest.mark.parametrize(
    "publisher", [{"type": "replace"}, {"type": "replace_partitions"}, {"type": "timestamped", "replace": True}]
)
def test_new_rows_that_take_the_place_of_all_older_ones_are_told(tmp_path: Path, publisher: dict[str, Any]) -> None:
    newest = {"name": "newest", "publisher": publisher}
    run(tmp_path, job(5, newest))
    (note,) = planned(tmp_path, job(8, newest)).notes
    assert note.startswith("the rows that are new take the place of all that branch 'newest' holds")


@pytest.mark.parametrize(
    ("branches", "parts"),
    [
        ([{"name": "newest", "publisher": {"type": "replace"}}, {"name": "history"}], {}),
        ([{"name": "days", "publisher": {"type": "replace_partitions"}, "writer": BY_DAY}], {}),
        (
            [{"name": "all", "publisher": {"type": "replace"}}],
            {"extract": {"namespace": "n", "table": "t", "is_full": True}},
        ),
    ],
    ids=["another keeps them", "partitions", "full extract"],
)
def test_older_rows_that_stay_or_come_again_need_no_word(
    tmp_path: Path, branches: list[dict[str, Any]], parts: dict[str, Any]
) -> None:
    run(tmp_path, job(5, *branches, **parts))
    assert planned(tmp_path, job(8, *branches, **parts)).notes == ()


def test_table_that_gets_all_rows_of_each_full_extract_again_is_told(tmp_path: Path) -> None:
    extract = {"namespace": "n", "table": "t", "type": "snapshot_only", "primary_keys": ["id"]}

    def notes(**options: Any) -> tuple[str, ...]:
        table = {"type": "sql_table", "url": "sqlite:///t.db", "table": "t", **options}
        return planned(tmp_path, job(5, {"name": "rows", "publisher": table}, {"name": "files"}, extract=extract)).notes

    (note,) = notes()
    assert note.startswith("each run reads everything, and adds all rows to a database table again (branch 'rows');")
    assert notes(mode="replace") == notes(mode="upsert") == ()


def test_branch_that_goes_on_in_another_place_is_told(tmp_path: Path) -> None:
    """The new table would hold the newest rows alone, as one does that the job file exchanges for another."""

    def notes(rows: int, kind: str, **options: Any) -> tuple[str, ...]:
        return planned(tmp_path, job(rows, {"name": "all", "publisher": {"type": kind, **options}})).notes

    run(tmp_path, job(5, {"name": "all"}))
    (note,) = notes(8, "delta")
    assert notes(5, "delta") == (note,)
    assert note.startswith("the rows of branch 'all' were kept in files until now; in a Delta table there will be only")
    assert notes(8, "merge", key=["id"]) == ()  # the same files
    run(tmp_path, job(8, {"name": "all", "publisher": {"type": "delta"}}))
    assert notes(9, "delta") == notes(9, "append") == ()  # all of its files are published, too


def test_branch_that_was_kept_nowhere_is_told(tmp_path: Path) -> None:
    run(tmp_path, job(5, {"name": "all", "publisher": {"type": "noop"}}))
    (note,) = planned(tmp_path, job(8, {"name": "all"})).notes
    assert note.startswith("the rows of branch 'all' were kept nowhere until now; in files there will be only rows")


def test_branch_that_comes_back_is_told(tmp_path: Path) -> None:
    kept, gone = {"name": "kept"}, {"name": "gone"}
    run(tmp_path, job(5, kept, gone))
    run(tmp_path, job(8, kept))
    (note,) = planned(tmp_path, job(9, kept, gone)).notes
    assert note.startswith("branch 'gone' had no part in the last commit, and gets only rows that were not read yet;")


@pytest.mark.parametrize("rows", [5, 8], ids=["idle", "new rows"])
@pytest.mark.parametrize(
    ("publisher", "other", "parts", "names"),
    [
        ({}, {}, {"output": {"path": "other"}}, "in other/test/numbers/all; its older files stay in lake/test/numbers"),
        (
            {},
            {"path": "{table}/{branch}/{dataset}"},
            {},
            "in lake/numbers/all; its older files stay in lake/test/numbers/all",
        ),
        (
            {"type": "delta"},
            {"publisher": {"type": "delta", "table": "dataset"}},
            {},
            "in lake/test/numbers/all/{dataset}; its older rows are in lake/test/numbers/all.",
        ),
        (
            {"type": "sql_table", "url": "sqlite:///t.db", "table": "t_{dataset}"},
            {"publisher": {"type": "sql_table", "url": "sqlite:///other.db", "table": "t_{dataset}"}},
            {},
            "in sqlite:///other.db#main.t_{dataset}; its older rows are in sqlite:///t.db#main.t_{dataset}.",
        ),
    ],
    ids=["output", "path", "delta", "database"],
)
def test_branch_that_goes_on_in_another_place_of_its_kind_is_told(
    tmp_path: Path, publisher: dict[str, Any], other: dict[str, Any], parts: dict[str, Any], names: str, rows: int
) -> None:
    branch = {"name": "all", **({"publisher": publisher} if publisher else {})}
    run(tmp_path, job(5, branch))
    assert planned(tmp_path, job(rows, branch)).notes == ()
    (note,) = planned(tmp_path, job(rows, branch | other, **parts)).notes
    assert names in note


def test_project_that_is_moved_with_its_output_needs_no_word(tmp_path: Path) -> None:
    table = {"name": "all", "publisher": {"type": "sql_table", "url": "sqlite:///t.db", "table": "t"}}
    run(tmp_path / "one", job(5, table, {"name": "files"}))
    (tmp_path / "one").rename(tmp_path / "two")
    assert planned(tmp_path / "two", job(5, table, {"name": "files"})).notes == ()


@pytest.mark.parametrize("is_hidden", [False, True])
def test_project_that_is_moved_knows_a_place_elsewhere_that_has_its_former_path_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_hidden: bool
) -> None:
    """A table that holds the rows was taken for a new one: a startpoint would have added them again."""
    far = tmp_path / "disk" / str(tmp_path)[1:] / "one"
    far.mkdir(parents=True)
    url = f"sqlite:///{far}/t.db"
    monkeypatch.setenv("DATABASE", url)
    publisher = {"type": "sql_table", "table": "t"} | ({"url_env": "DATABASE"} if is_hidden else {"url": url})
    branches: list[dict[str, Any]] = [{"name": "all", "publisher": publisher}, {"name": "files"}]
    (tmp_path / "one").mkdir()
    run(tmp_path / "one", job(5, *branches, output={"path": str(far)}))
    (tmp_path / "one").rename(tmp_path / "two")
    assert planned(tmp_path / "two", job(8, *branches, output={"path": str(far)})).notes == ()


@pytest.mark.parametrize("url", ["sqlite:///jobs/../t.db", "sqlite:///linked.db", "${DATABASE}"])
def test_table_by_another_name_needs_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    def one(url: str) -> dict[str, Any]:
        publisher = {"type": "sql_table", "table": "t"} | ({"url_env": "DATABASE"} if "$" in url else {"url": url})
        return {"name": "all", "publisher": publisher}

    (tmp_path / "linked.db").symlink_to("t.db")
    monkeypatch.setenv("DATABASE", f"sqlite:///{tmp_path}/t.db")
    run(tmp_path, job(5, one("${DATABASE}" if "$" in url else "sqlite:///t.db")))
    monkeypatch.setenv("DATABASE", f"sqlite:///{tmp_path}/linked.db")
    assert planned(tmp_path, job(8, one(url))).notes == ()


@pytest.mark.parametrize(("was", "now"), [("n_{dataset}", "n_a"), ("n_a", "n_{dataset}"), ("{dataset}", "main.a")])
def test_table_that_is_named_with_and_without_its_dataset_is_one(tmp_path: Path, was: str, now: str) -> None:
    """It counted as new: what a startpoint with `--on-rewind replace` read again was in it twice."""

    def table(name: str) -> dict[str, Any]:
        return {"name": "all", "publisher": {"type": "sql_table", "url": "sqlite:///t.db", "table": name}}

    run(tmp_path, job(5, table(was)))
    assert planned(tmp_path, job(8, table(now))).notes == ()
    assert "goes on in" in str(planned(tmp_path, job(8, table("other"))).notes)
    wish(tmp_path, job(8, table(now)), Oldest(), on_rewind="replace")
    assert "whose rows a run cannot replace" in planned(tmp_path, job(8, table(now))).problem


def test_branch_that_is_new_after_a_reset_gets_all_rows(tmp_path: Path) -> None:
    run(tmp_path, job(5, {"name": "old"}))
    with store_of(tmp_path, job(5, {"name": "old"})) as store:
        (state,) = store.load_dataset_states("numbers").values()
        apply_change(store, plan_reset(state, who="anna", why="all again", now=store.now()))
    assert planned(tmp_path, job(5, {"name": "old"}, {"name": "new"})).notes == ()


def test_places_of_tables_and_topics_hold_no_secret(tmp_path: Path) -> None:
    def place(**publisher: Any) -> str:
        spec = job(1, {"name": "all", "publisher": publisher})
        context = project(tmp_path, spec).run_context(spec, "run")
        return [*branch_homes(spec, context, make_publishers(spec, context, "a"))["all"].values()][-1]

    topic = {"type": "kafka_topic", "brokers": "one:9092,two:9092", "topic": "t", "commits_topic": "c"}
    assert place(**topic) == "kafka://one:9092,two:9092/t"
    rest = {"type": "rest", "uri": "https://anna@lake/api"}
    assert place(type="iceberg", table="n.t", catalog=rest) == "https://lake/api#n.t"
    sql = {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "w"}
    assert place(type="iceberg", table="n.t", catalog=sql).endswith("/c.db#default.n.t")
    assert place(type="sql_table", url="postgresql://anna@lake/db", table="t") == "postgresql://lake:5432/db#public.t"


def test_branch_that_is_new_at_a_startpoint_lacks_the_rows_before_it(tmp_path: Path) -> None:
    old, new = {"name": "old"}, {"name": "new"}
    run(tmp_path, job(5, old))
    wish(tmp_path, job(5, old), Specific("3"), on_rewind="append")
    told = "branch 'new' had no part in earlier commits, and gets only rows from the startpoint on;"
    assert any(note.startswith(told) for note in planned(tmp_path, job(8, old, new)).notes)
    wish(tmp_path, job(5, old), Oldest(), on_rewind="append")
    assert not any("had no part" in note for note in planned(tmp_path, job(8, old, new)).notes)


def test_branch_whose_writer_only_showed_rows_holds_none(tmp_path: Path) -> None:
    kept, shown = {"name": "kept"}, {"name": "shown", "writer": {"type": "console"}}
    run(tmp_path, job(5, kept, shown))
    assert planned(tmp_path, job(8, kept, shown | {"path": "elsewhere/{dataset}"})).notes == ()
    assert planned(tmp_path, job(8, kept, shown | {"name": "other"})).notes == ()
    (note,) = planned(tmp_path, job(8, kept, {"name": "shown"})).notes
    assert note.startswith("the rows of branch 'shown' were kept nowhere until now; in files there will be only rows")


@pytest.mark.parametrize("rewind", ["replace", "append"])
def test_table_that_is_new_gets_the_older_rows_beside_files_that_are_replaced(tmp_path: Path, rewind: str) -> None:
    """What the note on it advises: a branch that holds no row yet keeps nobody from replacing those of others."""
    files = {"name": "files"}
    table = {"name": "table", "publisher": {"type": "sql_table", "url": "sqlite:///t.db", "table": "t"}}
    run(tmp_path, job(5, files))
    wish(tmp_path, job(5, files), Oldest(), on_rewind=rewind)
    plan = planned(tmp_path, job(8, files, table))
    assert (plan.problem, len(plan.replaces)) == ("", 1 if rewind == "replace" else 0)
    assert ("readers of 'files' see the rows of [0, 5) twice." in plan.notes) is (rewind == "append")
    run(tmp_path, job(8, files, table))
    wish(tmp_path, job(8, files, table), Oldest(), on_rewind="replace")
    assert (
        "is published to a database table, whose rows a run cannot replace"
        in planned(tmp_path, job(9, files, table)).problem
    )
    renamed = {**table, "name": "other"}
    assert "whose rows a run cannot replace" in planned(tmp_path, job(9, files, renamed)).problem  # the same table
    moved = {"name": "table", "publisher": {"type": "sql_table", "url": "sqlite:///t.db", "table": "u"}}
    assert planned(tmp_path, job(9, moved)).problem == ""
    run(tmp_path, job(9, files, moved))
    wish(tmp_path, job(9, moved), Oldest(), on_rewind="replace")
    assert "whose rows a run cannot replace" in planned(tmp_path, job(9, files, table)).problem  # back where it was


def test_table_of_a_state_that_an_older_program_wrote_may_hold_rows(tmp_path: Path) -> None:
    files = {"name": "files"}
    table = {"name": "table", "publisher": {"type": "sql_table", "url": "sqlite:///t.db", "table": "t"}}
    run(tmp_path, job(5, files))
    with store_of(tmp_path, job(5, files)) as store:
        (state,) = store.load_dataset_states("numbers").values()
        older = replace(state, places={}, version=state.version + 1)
        apply_change(store, replace(plan_reset(state, who="anna", why="older", now=store.now()), after=older))
    for rows in (5, 6):
        wish(tmp_path, job(rows, files), Oldest(), on_rewind="replace")
        assert "whose rows a run cannot replace" in planned(tmp_path, job(9, files, table)).problem
        run(tmp_path, job(rows, files))


def test_table_that_a_branch_had_before_it_was_taken_out_may_hold_rows(tmp_path: Path) -> None:
    files = {"name": "files"}
    table = {"name": "table", "publisher": {"type": "sql_table", "url": "sqlite:///t.db", "table": "t"}}
    run(tmp_path, job(5, files, table))
    run(tmp_path, job(6, files))
    wish(tmp_path, job(6, files), Oldest(), on_rewind="replace")
    renamed = {**table, "name": "other"}
    assert "whose rows a run cannot replace" in planned(tmp_path, job(9, files, renamed)).problem
