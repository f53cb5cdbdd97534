"""The path of a branch: where its files lie, which templates are refused, and what a change of it leaves true."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.snapshots.reader import load_published
from gobblin_dagster.engine.validation import check_parts
from gobblin_dagster.spec.document import show_loc
from gobblin_dagster.spec.explain import explain
from gobblin_dagster.spec.job import ExecutionSpec, JobSpec
from tests.unit.engine.jobs import job_spec, project, published, run

URN = "a/b c"


class _Mirror(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The local disk as a server."""

    protocol = "mirror"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("mirror://").rstrip("/") or "/"


def _job(rows: int = 4, path: str | None = None, other: str | None = None, **main: Any) -> JobSpec:
    branches = [{"name": "all"} | main, {"name": "copy"}]
    for branch, given in zip(branches, (path, other), strict=True):
        if given is not None:
            branch["path"] = given
    return job_spec({URN: {"rows": rows, "unit_rows": 4}}, fork={"branches": branches})


def _files(root: Path, branch: str = "all") -> list[str]:
    found = load_published(project(root, _job()), _job(), URN)
    return [str(Path(path).relative_to(root / "lake")) for path in found.paths(branch)]


def _folders(root: Path, branch: str = "all") -> set[str]:
    return {path.rpartition("/")[0] for path in _files(root, branch)}


def test_path_given_holds_for_its_branch_alone(tmp_path: Path) -> None:
    job = _job(path="raw/{table}.{branch}/{dataset}")
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert _folders(tmp_path) == {"raw/numbers.all/a%2Fb%20c"}
    assert _folders(tmp_path, "copy") == {"test/numbers/copy/a%2Fb%20c"}
    assert load_published(project(tmp_path, job), job, URN).folder("all").endswith("lake/raw/numbers.all/a%2Fb%20c")


def test_path_changed_leaves_files_in_place_and_readable_and_rolls_back(tmp_path: Path) -> None:
    run(tmp_path, _job(4))
    before = _files(tmp_path)
    changed = _job(8, path="raw/{dataset}")
    assert run(tmp_path, changed).status is RunStatus.SUCCEEDED
    assert set(before) < set(_files(tmp_path))
    assert _folders(tmp_path) == {"test/numbers/all/a%2Fb%20c", "raw/a%2Fb%20c"}
    assert published(tmp_path, changed, URN) == list(range(8))
    rollback(project(tmp_path, changed), changed, URN, 1)
    assert _files(tmp_path) == before
    assert published(tmp_path, changed, URN) == list(range(4))


def test_partitions_replaced_after_path_changed_lose_their_old_files(tmp_path: Path) -> None:
    parts: dict[str, Any] = {
        "converters": [{"type": "sql", "select": "id, 0 as part"}],
        "writer": {"type": "parquet", "partition_by": ["part"]},
        "publisher": {"type": "replace_partitions"},
    }
    run(tmp_path, _job(4, **parts))
    changed = _job(8, path="raw/{dataset}", **parts)
    run(tmp_path, changed)
    assert _folders(tmp_path) == {"raw/a%2Fb%20c/part=0"}
    assert published(tmp_path, changed, URN) == [4, 5, 6, 7]


def test_clean_after_path_changed_keeps_what_snapshots_hold(tmp_path: Path) -> None:
    run(tmp_path, _job(4))
    changed = _job(8, path="raw/{dataset}")
    run(tmp_path, changed)
    clean(project(tmp_path, changed), changed)
    assert published(tmp_path, changed, URN) == list(range(8))


@pytest.mark.parametrize(
    "path",
    ["raw", "{dataset}", "/raw/{dataset}", "../{dataset}", "raw/../x/{dataset}", "_gobblin/{dataset}", "a//{dataset}",
     "raw/.x/{dataset}", "raw/{dataset}/x", "raw/x={dataset}", "day=1/{dataset}", "a b/{dataset}", "{job}/{dataset}",
     "{table.x}/{dataset}", "raw/{dataset}\n"],
)  # fmt: skip
def test_path_that_is_no_plain_template_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match=r"fork\.branches\.0\.path\n"):
        _job(path=path)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("raw/{dataset}", "raw/{dataset}"),
        ("raw/{dataset}", "raw/x/{dataset}"),
        ("raw/x/{dataset}", "raw/{dataset}"),
        ("{namespace}/{table}/copy/{dataset}", None),
        ("{namespace}/{dataset}", None),
        ("test/numbers/quarantine/{dataset}", None),
    ],
)
def test_branches_in_one_folder_are_refused(one: str, other: str | None) -> None:
    with pytest.raises(ValidationError, match="give each branch a path of its own"):
        _job(path=one, other=other)


def test_folder_of_a_file_is_found_behind_folders_of_the_same_name() -> None:
    assert DatasetUrn("x").folder_in("/x/lake/x/x/day=1/file") == "/x/lake/x/x"


def test_branches_that_differ_in_case_only_share_a_folder_where_case_does_not_count() -> None:
    job = {"job": "j", "source": "x", "extract": {"namespace": "n", "table": "t"}, "output": {"path": "lake"}}
    for path in ("{namespace}/{table}/B/{dataset}", "N/T/b/x/{dataset}", "{namespace}/T/Quarantine/{dataset}"):
        fork = {"branches": [{"name": "b"}, {"name": "c", "path": path}]}
        with pytest.raises(ValidationError, match="would be inside the folder of"):
            JobSpec.model_validate({**job, "fork": fork})
    with pytest.raises(ValidationError, match="would be inside the folder of 'B'"):
        JobSpec.model_validate({**job, "fork": {"branches": [{"name": "b"}, {"name": "B"}]}})
    names = [{"name": name} for name in ("b", "b_c", "bc", "c")]
    assert len(JobSpec.model_validate({**job, "fork": {"branches": names}}).fork.branches) == 4


def test_datasets_whose_folders_are_one_where_case_does_not_count_are_refused(tmp_path: Path) -> None:
    first = run(tmp_path, job_spec({"Orders": {"rows": 2}}))
    assert first.status is RunStatus.SUCCEEDED
    for entry in [*(tmp_path / "lake").iterdir()]:
        entry.with_name(entry.name.swapcase()).symlink_to(entry)  # found by both names, as where case does not count

    both = run(tmp_path, job_spec({"Orders": {"rows": 4}, "orders": {"rows": 3}, "other": {"rows": 1}}))
    assert [(one.dataset_urn, one.outcome, one.rows_read) for one in both.datasets] == [
        ("Orders", DatasetOutcome.FAILED, 0),
        ("orders", DatasetOutcome.FAILED, 0),
        ("other", DatasetOutcome.COMMITTED, 1),
    ]  # fmt: skip
    message = both.datasets[0].failures[0].message
    assert f"datasets 'Orders', 'orders' would share a folder: in {tmp_path / 'lake'} names that differ" in message

    alone = run(tmp_path, job_spec({"orders": {"rows": 3}}))  # the files of the other one lie there
    assert [one.outcome for one in alone.datasets] == [DatasetOutcome.FAILED]
    assert run(tmp_path, job_spec({"Orders": {"rows": 4}})).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("execution", "problem"),
    [
        ({"packs": True}, "packs: expected a number, got true"),
        ({"limit": {"seconds": float("inf")}}, "limit.seconds: input should be a finite number, got inf"),
        ({"limit": {"rows": False}}, "limit.rows: expected a number, got false"),
    ],
)
def test_number_that_is_none_is_refused(execution: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ExecutionSpec.model_validate(execution)
    assert [f"{show_loc(loc)}: {why}" for loc, why in explain(caught.value, ExecutionSpec)] == [problem]


@pytest.mark.parametrize(
    ("source", "output", "is_refused"),
    [
        ("data/{dataset:**}/*.csv", "data", True),
        ("{dataset:**}/*.csv", "lake", True),
        ("data/*/*/*/{dataset}/*.csv", "data", True),
        ("link/{dataset:**}/*.csv", "data/in", True),
        ("data/{dataset:**}/*.csv", "link/in", True),
        ("data/{dataset:**}/*.csv", "file://{root}/data/in", True),
        ("data/{dataset:**}/*.csv", "file://{root}/link/in", True),
        ("data/n/t/main/{dataset:shop,web}/*.csv", "data", True),
        ("data/n/t/main/n.t/*.csv", "data", True),
        ("s3://b/lake/{dataset:**}/*.csv", "s3://b/lake//", True),
        ("s3://b/lake//{dataset:**}/*.csv", "s3://b/lake", True),
        ("s3://b/lake/{dataset:**}/*.csv", "s3://b/Lake", False),
        ("hdfs://node:8020/lake/{dataset:**}/*.csv", "hdfs://NODE/lake/", True),
        ("hdfs://node//lake/{dataset:**}/*.csv", "hdfs://node:8020/lake", True),
        ("hdfs://node:9000/lake/{dataset:**}/*.csv", "hdfs://node:8020/lake", False),
        ("data/n/t/main/{dataset:shop,web}/old/*.csv", "data", False),
        ("data/n/t/main/n.x/*.csv", "data", False),
        ("data/" + "é" * 60 + "/{dataset}/*.csv", "data", False),
        ("link/{dataset:**}/*.csv", "lake", False),
        ("data/{dataset}/*.csv", "data", False),
        ("data/{dataset:**}/*.csv", "lake", False),
        ("data/{dataset:**}/{date:%Y-%m-%d}.csv", "data", False),
        ("data/{dataset:**}/*.json", "data", False),
    ],
)
def test_output_that_the_source_would_read_is_refused(
    tmp_path: Path, source: str, output: str, is_refused: bool
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    job = JobSpec.model_validate(
        {
            "job": "j",
            "source": {"type": "files", "path": source, "format": "csv"},
            "extract": {"namespace": "n", "table": "t"},
            "writer": "csv",
            "output": {"path": output.format(root=tmp_path)},
        }
    )
    if not is_refused:
        check_parts(job, tmp_path)
        return
    with pytest.raises(UsageError, match="the source would read what branch 'main' publishes"):
        check_parts(job, tmp_path)


@pytest.mark.parametrize(
    ("path", "publisher", "place"),
    [
        ("*/n/t/{dataset}/*.parquet", {"type": "delta"}, "in .*/lake/n/t/main/dataset"),
        (
            "lake/n/t/main/{dataset}/part-*.parquet",
            {"type": "delta", "table": "dataset"},
            "in .*/lake/n/t/main/dataset",
        ),
        ("*/l/{dataset}/data/*.parquet", {"type": "iceberg", "mode": "merge", "key": ["id"]}, ".*/wh/l/t/data/"),
    ],
)
def test_files_that_a_table_library_writes_are_output_too(
    tmp_path: Path, path: str, publisher: dict[str, Any], place: str
) -> None:
    if publisher["type"] == "iceberg":
        publisher |= {"table": "l.t", "catalog": {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "wh"}}
    parts = {"extract": {"namespace": "n", "table": "t"}, "output": {"path": "lake"}}
    source = {"type": "files", "path": path, "format": "parquet"}
    job = JobSpec.model_validate({"job": "j", "source": source, "publisher": publisher, **parts})
    with pytest.raises(UsageError, match=f"read what branch 'main' publishes \\({place}"):
        check_parts(job, tmp_path)


MERGE = {"mode": "merge", "key": ["id"]}
CATALOG = {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "wh"}


@pytest.mark.parametrize(
    "catalog",
    [{"warehouse": "file:{root}/wh"}, {"warehouse": "file://{root}/linked"}, {}],
    ids=["short URL", "URL through a link", "variable"],
)
def test_warehouse_is_known_by_whatever_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: dict[str, str]
) -> None:
    monkeypatch.setenv("WAREHOUSE", str(tmp_path / "wh"))
    (tmp_path / "linked").symlink_to("wh")
    written = {name: text.format(root=tmp_path) for name, text in catalog.items()}
    publisher = MERGE | {
        "type": "iceberg",
        "table": "l.t",
        "catalog": {"type": "sql", "uri": "sqlite:///c.db"} | written,
    }
    if not catalog:
        publisher["catalog_env"] = {"warehouse": "WAREHOUSE"}
    source = {"type": "files", "path": "wh/l/{dataset}/data/*.parquet", "format": "parquet"}
    parts = {"extract": {"namespace": "n", "table": "t"}, "output": {"path": "lake"}}
    with pytest.raises(UsageError, match="read what branch 'main' publishes"):
        check_parts(JobSpec.model_validate({"job": "j", "source": source, "publisher": publisher, **parts}), tmp_path)


@pytest.mark.parametrize(
    ("publisher", "folder"),
    [
        (MERGE | {"type": "delta"}, "lake/n/t/main"),
        (MERGE | {"type": "iceberg", "table": "l.t", "catalog": CATALOG}, "wh/l/t/data"),
    ],
    ids=["delta", "iceberg"],
)
def test_rows_that_were_merged_into_a_table_are_not_read_through_a_link(
    tmp_path: Path, publisher: dict[str, Any], folder: str
) -> None:
    (tmp_path / "in/d").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in/d/1.parquet")
    source = {"type": "files", "path": "in/{dataset}/*.parquet", "format": "parquet"}
    parts = {"extract": {"namespace": "n", "table": "t"}, "output": {"path": "lake"}}
    job = JobSpec.model_validate({"job": "j", "source": source, "publisher": publisher, **parts})
    assert run(tmp_path, job).datasets[0].rows_read == 1
    (tmp_path / "in/again").symlink_to(tmp_path / folder)
    refused = run(tmp_path, job).datasets[0]
    assert (refused.dataset_urn, refused.rows_read) == ("again", 0)
    assert "this job has published it, and would read it again and again" in refused.failures[0].message


def test_own_output_is_not_read_through_a_link_inside_of_the_sources_folders(tmp_path: Path) -> None:
    """The first run makes the folders that the link leads to: only the files show it."""
    (tmp_path / "in" / "c" / "d").mkdir(parents=True)
    (tmp_path / "in" / "c" / "d" / "a.csv").write_text("id\n1\n")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "lake" / "n" / "t")
    job = JobSpec.model_validate(
        {
            "job": "j",
            "source": {"type": "files", "path": "in/*/*/**/*.csv", "format": "csv"},
            "extract": {"namespace": "n", "table": "t"},
            "writer": "csv",
            "output": {"path": "lake"},
        }
    )
    check_parts(job, tmp_path)
    assert run(tmp_path, job).datasets[0].rows_read == 1
    (refused,) = run(tmp_path, job).datasets
    assert "this job has published it, and would read it again and again" in refused.failures[0].message
    (tmp_path / "in" / "link").unlink()
    assert run(tmp_path, job).datasets[0].failures == ()


def test_own_output_is_not_read_from_a_server_by_another_name(tmp_path: Path) -> None:
    """`hdfs://127.0.0.1:8020` for `hdfs://localhost:8020` was another cluster: each run read the last one's rows."""
    fsspec.register_implementation("mirror", _Mirror, clobber=True)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.csv").write_text("id\n1\n")
    source = {"type": "files", "path": f"mirror://{tmp_path}/{{dataset:**}}/*.csv", "format": "csv"}
    parts = {"extract": {"namespace": "n", "table": "t"}, "writer": "csv", "output": {"path": "lake"}}
    job = JobSpec.model_validate({"job": "j", "source": source, **parts})
    assert run(tmp_path, job).datasets[0].rows_read == 1
    refused = run(tmp_path, job).datasets[-1]
    assert "this job has published it, and would read it again and again" in refused.failures[0].message
    # Another job may read what this one publishes into folders of the same name.
    other = {"job": "k", "source": source | {"path": f"mirror://{tmp_path}/lake/n/t/main/{{dataset}}/*.csv"}}
    assert (
        run(tmp_path, JobSpec.model_validate({**parts, **other, "output": {"path": "far"}})).datasets[0].rows_read == 1
    )


def test_own_output_is_known_after_its_small_files_were_compacted(tmp_path: Path) -> None:
    (tmp_path / "in" / "c").mkdir(parents=True)
    job = JobSpec.model_validate(
        {
            "job": "j",
            "source": {"type": "files", "path": "in/{dataset}/*.csv", "format": "csv"},
            "extract": {"namespace": "n", "table": "t"},
            "writer": "csv",
            "output": {"path": "lake"},
            "commit": {"keep_snapshots": 1},
        }
    )
    for name in "ab":
        (tmp_path / "in" / "c" / f"{name}.csv").write_text("id\n1\n")
        run(tmp_path, job)
    compact(project(tmp_path, job), job)
    clean(project(tmp_path, job), job)
    published_folder = tmp_path / "lake" / "n" / "t" / "main" / "c"
    assert [path.name[32:41] for path in published_folder.iterdir()] == ["-compact-"]
    (tmp_path / "in" / "d").symlink_to(published_folder)
    refused = run(tmp_path, job).datasets[-1]
    assert (refused.dataset_urn, refused.rows_read) == ("d", 0)
    assert "this job has published it, and would read it again and again" in refused.failures[0].message


POLICY = {"name": "whole", "type": "not_null", "columns": ["id"]}
BY_DAY = {"type": "csv", "partition_by": ["day"]}


@pytest.mark.parametrize(
    ("path", "parts", "is_refused"),
    [
        ("lake/n/t/quarantine/{dataset}/*.parquet", {"row_policies": [POLICY]}, True),
        ("lake/n/t/quarantine/{dataset}/*.parquet", {}, False),
        ("lake/{dataset:**}/*.csv.gz", {"writer": {"type": "csv", "compression": "gzip"}}, True),
        ("lake/{dataset:**}/part-*.csv", {"writer": {"type": "csv", "file_name": "part-{unique}"}}, True),
        (
            "lake/n/t/main/{dataset}/day={date:%Y-%m-%d}/*.csv",
            {"writer": BY_DAY},
            True,
        ),
        (
            "lake/n/t/main/{dataset}/at={date:%Y-%m-%d}/*.csv",
            {"writer": BY_DAY},
            False,
        ),
    ],
    ids=["quarantine", "quarantine of others", "compressed", "named", "partition by date", "other level"],
)
def test_output_is_recognised_by_the_names_that_its_files_will_have(
    tmp_path: Path, path: str, parts: dict[str, Any], is_refused: bool
) -> None:
    job = JobSpec.model_validate(
        {
            "job": "j",
            "source": {"type": "files", "path": path, "format": "csv"},
            "extract": {"namespace": "n", "table": "t"},
            "output": {"path": "lake"},
            **parts,
        }
    )
    with pytest.raises(UsageError, match="the source would read what branch") if is_refused else nullcontext():
        check_parts(job, tmp_path)
