"""`CommitStepStore` on a local disk; what it promises on any storage stands in `contract/test_step_store.py`."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import StepRefusedError, UsageError
from gobblin_dagster.engine.commit.step_store import CommitStepStore
from gobblin_dagster.state import open_store
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.storage._rename import rename_new


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


def test_store_name_has_one_output(tmp_path: Path, steps: CommitStepStore) -> None:
    other = CommitStepStore(
        open_store("sqlite:///state.db", base_dir=tmp_path), LocalStorage(), str(tmp_path / "other")
    )
    path = tmp_path / "task-output/1.avro"
    put(path)
    sequence = steps.begin("s", "T").rename(str(path), str(tmp_path / "job-output/T/1.avro")).end()
    early = other.begin("s", "U").high_watermark("0", 1).end()
    assert sequence.commit()
    assert not early.commit()
    for call in (other.create, partial(other.begin, dataset_urn="T"), partial(other.get, dataset_urn="U")):
        with pytest.raises(UsageError, match=r"belong to the output .*job-output, not to .*other"):
            call("s")
    (tmp_path / "link").symlink_to(tmp_path / "job-output")
    CommitStepStore(open_store("sqlite:///state.db", base_dir=tmp_path), LocalStorage(), str(tmp_path / "link")).begin(
        "s", "T"
    )
    assert other.begin("s2", "T").high_watermark("0", 1).end().commit()


@pytest.mark.parametrize("at", ["copy", "source"])
def test_move_from_another_mount_that_is_killed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    def rename(source: str, target: str) -> None:
        if "task-output" in str(Path(source).parent.resolve()):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        rename_new(source, target)

    monkeypatch.setattr(LocalStorage, "is_leftover", lambda *_: True)  # as on two mounts
    storage = LocalStorage(rename=rename, durable=False)
    root = tmp_path / "job-output"
    steps = CommitStepStore(open_store("sqlite:///state.db", base_dir=tmp_path), storage, str(root))
    path = tmp_path / "task-output/T/1.avro"
    put(path)
    sequence = steps.begin("s", "T").rename(str(path), str(root / "T/1.avro")).high_watermark("0", 1).end()
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete", killed)
        if at == "copy":
            patch.setattr("shutil.copyfileobj", killed)
        with pytest.raises(Killed):
            sequence.commit()
    left = sorted(one.name[:5] for one in (root / "T").iterdir())
    assert (left, path.exists()) == ([".tmp-"] if at == "copy" else ["1.avr"], True)
    assert steps.get("s", "T").commit()
    assert ([one.name for one in (root / "T").iterdir()], path.exists()) == (["1.avro"], False)
