from __future__ import annotations

import grp
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import StepRefusedError, UsageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.commit.steps import Permissions, SetPermissionsStep, step_from_json, step_to_json
from gobblin_dagster.storage import LocalStorage, MemoryStorage
from tests.unit.engine.jobs import job_spec, run

GROUP = grp.getgrgid(os.getgid()).gr_name


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("day/1.csv", "day/2.csv", "3.csv"):
        file = tmp_path / "lake" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        file.chmod(0o600)
    (tmp_path / "lake/day").chmod(0o700)
    (tmp_path / "lake").chmod(0o755)
    return tmp_path / "lake"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _step(lake: Path, **wanted: Any) -> SetPermissionsStep:
    return SetPermissionsStep.of(str(lake), [f"{lake}/day/1.csv", f"{lake}/3.csv"], Permissions(**wanted))


def test_files_and_folders_between_get_their_modes_and_no_other(lake: Path) -> None:
    step, storage = _step(lake, file_mode=0o640, dir_mode=0o750, group=GROUP), LocalStorage()
    assert not step.verify(storage)
    step.execute(storage)
    assert step.verify(storage)
    assert [_mode(lake / name) for name in ("day/1.csv", "3.csv", "day/2.csv")] == [0o640, 0o640, 0o600]
    assert (_mode(lake / "day"), _mode(lake)) == (0o750, 0o755)


def test_half_done_step_is_finished(lake: Path) -> None:
    step, storage = _step(lake, file_mode=0o640), LocalStorage()
    (lake / "3.csv").chmod(0o640)
    assert not step.verify(storage)
    step.execute(storage)
    assert step.verify(storage)


def test_file_that_is_gone_is_not_done(lake: Path) -> None:
    step = _step(lake, file_mode=0o600)
    (lake / "3.csv").unlink()
    assert not step.verify(LocalStorage())
    with pytest.raises(FileNotFoundError):
        step.execute(LocalStorage())


def test_link_is_not_followed(lake: Path) -> None:
    (lake / "3.csv").unlink()
    (lake / "3.csv").symlink_to(lake / "day/2.csv")
    with pytest.raises(OSError, match=r"3\.csv"):
        _step(lake, file_mode=0o640).execute(LocalStorage())
    assert _mode(lake / "day/2.csv") == 0o600


def test_step_survives_json(lake: Path) -> None:
    step = _step(lake, file_mode=0o640, group="staff")
    assert step_from_json(step_to_json(step)) == step
    assert step.describe() == "set mode 0640 of files, group staff for 2 published files"


def test_storage_without_modes_refuses(lake: Path) -> None:
    with pytest.raises(StepRefusedError, match="MemoryStorage has no modes"):
        _step(lake, file_mode=0o640).execute(MemoryStorage())


def test_job_publishes_with_modes(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 5}}, output={"path": "lake", "file_mode": "0640", "dir_mode": "0750", "group": GROUP})
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    published = [path for path in (tmp_path / "lake").rglob("*") if "_gobblin" not in path.parts]
    assert {_mode(path) for path in published if path.is_file()} == {0o640}
    assert {_mode(path) for path in published if path.is_dir()} == {0o750}


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ({"path": "memory://permissions/lake", "file_mode": "0640"}, "MemoryStorage, which has no modes"),
        ({"path": "lake", "group": "no-such-group"}, "there is no group 'no-such-group'"),
    ],
)
def test_what_can_never_be_set_is_refused_before_anything_is_read(
    tmp_path: Path, output: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        run(tmp_path, job_spec({"a": {"rows": 5}}, output=output))


@pytest.mark.parametrize("mode", ["0999", "rw-r-----", 640])
def test_mode_that_is_no_octal_text_is_refused(mode: object) -> None:
    with pytest.raises(ValueError, match="file_mode"):
        job_spec({}, output={"path": "lake", "file_mode": mode})
