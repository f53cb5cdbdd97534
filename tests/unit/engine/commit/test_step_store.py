"""`CommitStepStore` on a local disk; what it promises on any storage stands in `contract/test_step_store.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.engine.commit.step_store import CommitStepStore
from gobblin_dagster.state import open_store
from gobblin_dagster.storage import LocalStorage


@pytest.fixture
def steps(tmp_path: Path) -> CommitStepStore:
    return CommitStepStore(
        open_store("sqlite:///state.db", base_dir=tmp_path), LocalStorage(), str(tmp_path / "job-output")
    )


def put(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a")
    return str(path)


def test_link_that_leads_out_of_the_output_is_not_followed_to_delete(tmp_path: Path, steps: CommitStepStore) -> None:
    precious = Path(put(tmp_path / "else/T/precious"))
    put(tmp_path / "else/T/1")
    internal = tmp_path / "job-output/_gobblin"
    internal.mkdir(parents=True)
    (internal / "task-output").symlink_to(tmp_path / "else")
    builder = steps.begin("job", "T").rename(f"{internal}/task-output/T/1", f"{tmp_path}/job-output/T/1")
    assert not builder.end().commit()
    assert precious.exists()


def test_manifest_is_not_written_through_a_link_that_leads_out_of_the_output(
    tmp_path: Path, steps: CommitStepStore
) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "job-output").mkdir()
    (tmp_path / "job-output/_gobblin").symlink_to(tmp_path / "else")
    source = put(tmp_path / "task-output/1")
    steps.begin("job", "T").rename(source, f"{tmp_path}/job-output/T/1").end().commit()
    assert list((tmp_path / "else").rglob("*")) == []


def test_one_file_for_two_places_is_refused_before_it_is_moved(tmp_path: Path, steps: CommitStepStore) -> None:
    source, target = put(tmp_path / "task-output/1"), tmp_path / "job-output/T"
    builder = steps.begin("job", "T").rename(source, f"{target}/1").rename(source, f"{target}/2")
    with pytest.raises(StepRefusedError, match="another step of the sequence has the same source"):
        builder.end()
    assert Path(source).exists()


def test_files_of_other_datasets_in_the_same_folders_stay(tmp_path: Path, steps: CommitStepStore) -> None:
    internal, output = tmp_path / "job-output/_gobblin/task-output", tmp_path / "job-output"
    sources = {urn: put(internal / place) for urn, place in {"T": "T/1", "T/a": "T/a/1", "u": "T/2"}.items()}
    waiting = [steps.begin("job", urn).rename(source, f"{output}/{urn}/1").end() for urn, source in sources.items()]
    assert [one.commit() for one in waiting] == [True] * 3
    assert all((output / urn / "1").exists() for urn in sources)
    assert not (internal / "T/a").exists()
