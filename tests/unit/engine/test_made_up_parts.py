"""A part that the package does not have goes the whole way of a run after one registration: no list of names stops
it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.extras import missing_extras
from gobblin_dagster.constructs.formats.text import TextFormat
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.verify import verify
from gobblin_dagster.engine.results import Audit
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from gobblin_dagster.engine.snapshots.reader import load_published
from gobblin_dagster.spec.gobblin.lookup import fields_of
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage import open_storage, schemes
from gobblin_dagster.storage.schemes import register_scheme
from tests.unit.engine import made_up
from tests.unit.engine.jobs import job_spec, project, run
from tests.unit.engine.made_up import FORMATS


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the made-up parts for one test."""
    monkeypatch.setattr(registry, "_targets", {kind: dict(known) for kind, known in registry._targets.items()})
    monkeypatch.setattr(schemes, "_TARGETS", dict(schemes._TARGETS))
    monkeypatch.setattr(schemes, "_LOADED", {})
    monkeypatch.setattr(made_up, "SHELVES", {})
    for name, parts in FORMATS.items():
        registry.register_format(name, **parts)
    register_scheme("shelf", "tests.unit.engine.made_up:ShelfScheme")
    yield
    for key in [key for key in registry._loaded if key[1] in FORMATS]:
        del registry._loaded[key]


def _audit(root: Path, job: JobSpec) -> Audit:
    source = registry.create(ConstructKind.SOURCE, job.source, ConstructContext(job=job.job, base_dir=str(root)))
    store = project(root, job).open_store()
    try:
        audit = audit_dataset(job, source, store, "a")
    finally:
        store.close()
    assert audit is not None
    return audit


def _job(writer: dict[str, Any], **more: Any) -> JobSpec:
    parts: dict[str, Any] = {"fork": {"branches": [{"name": "all"}]}, "execution": {"merge_bytes": 0}}
    return job_spec({"a": {"rows": 33, "unit_rows": 5}}, writer=writer, **parts, **more)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("root", ["lake", "shelf://one/lake"])
@pytest.mark.parametrize("name", [*FORMATS, "parquet", "csv"])
def test_made_up_parts_are_written_published_counted_merged_and_read_back(tmp_path: Path, name: str, root: str) -> None:
    steps = [{"type": "tests.unit.engine.made_up:MarkStep", "name": "_mark"}]
    job = _job({"type": name}, output={"path": root}, commit={"steps": steps})
    (result,) = run(tmp_path, job).datasets
    assert result.failures == ()
    opened = project(tmp_path, job)
    small = load_published(opened, job, "a")
    assert len(small.files) == 7
    assert all(file.path.endswith(f".{name}") for file in small.files)
    assert _audit(tmp_path, job).published_rows == {"all": 33}

    (done,) = compact(opened, job)
    assert (done.problem, done.files) == ("", 7)
    merged = load_published(opened, job, "a")
    assert [file.rows for file in merged.files] == [33]
    assert _audit(tmp_path, job).published_rows == {"all": 33}
    assert opened.storage(job).read(f"{opened.output_root(job)}/_mark") == b"published"
    assert (_audit(tmp_path, job).lost, _audit(tmp_path, job).duplicated) == (0, 0)
    table = merged.to_arrow("all").to_table()
    assert table["id"].to_pylist() == list(range(33))
    assert "writer(*).partition_by" in list(fields_of("writer", name))  # keys of Gobblin's job files reach it
    assert verify(opened, job, checksum=True).is_whole


@pytest.mark.usefixtures("registered")
def test_made_up_format_is_read_by_the_source_of_files(tmp_path: Path) -> None:
    first = _job({"type": "feather"})
    run(tmp_path, first)
    folder = tmp_path / "lake/test/numbers/all"
    source = {"type": "files", "path": f"{folder}/{{dataset}}/*.feather", "format": "feather", "new_files": "name"}
    second = job_spec({}, job="again", source=source, output={"path": "copy"}, fork={"branches": [{"name": "all"}]})
    (result,) = run(tmp_path, second).datasets
    assert (result.rows_read, result.rows_by_branch) == (33, {"all": 33})


@pytest.mark.usefixtures("registered")
def test_a_format_is_registered_once() -> None:
    with pytest.raises(UsageError, match=r"The format type 'feather' is .*made_up:FeatherFormat"):
        registry.register_format("feather", reading="mine:Format", writing="mine:Writer")
    assert {*FORMATS, "parquet"} <= {*registry.file_formats()}


class _WithoutCount(TextFormat):
    Published = dict  # type: ignore[assignment]  # what is refused


def test_published_files_of_a_format_are_told_by_a_class_of_their_own() -> None:
    with pytest.raises(UsageError, match=r"_WithoutCount.* `Published` that is no PublishedFormat"):
        registry.load(ConstructKind.FORMAT, f"{__name__}:_WithoutCount")


def test_file_that_no_format_knows_is_counted_by_lines_and_left_alone(tmp_path: Path) -> None:
    job = _job({"type": "tests.unit.engine.made_up:PipesWriter"})
    run(tmp_path, job)
    assert _audit(tmp_path, job).published_rows == {"all": 33}
    assert compact(project(tmp_path, job), job) == []
    with pytest.raises(UsageError, match="pyarrow reads no pipes files"):
        load_published(project(tmp_path, job), job, "a").to_arrow("all")


@pytest.mark.usefixtures("registered")
def test_made_up_storage_says_what_its_urls_lack_and_which_package_it_needs() -> None:
    with pytest.raises(UsageError, match="'shelf:///lake' names no shelf") as caught:
        open_storage("shelf:///lake")
    assert "s3://bucket/path" in str(caught.value)
    assert "shelf://name/path" in str(caught.value)
    with pytest.raises(UsageError, match=r"scheme 'shelf' is .*ShelfScheme"):
        register_scheme("shelf", "mine:Shelf")
    needed = missing_extras(_job({"type": "parquet"}, output={"path": "shelf://one/lake"}))
    assert [(place, problem.partition(";")[0]) for place, problem in needed] == [
        ("output.path", "The package shelf_client is not installed")
    ]
