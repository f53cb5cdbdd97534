"""Bad input, as a user meets it: the message names dataset and file, the exit code is as documented, nothing is
lost."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .project import GOBBLIN, JOB, WITH_SPARK, WITHOUT_SPARK, flat, gobblin, make_project, put

pytestmark = pytest.mark.e2e

HEAD = "id,amount\n"


def test_unknown_key_and_wrong_type_in_one_file_are_both_named_with_lines(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p", JOB.replace("output:", "outptu: {}\ncommit: {redo_limit: often}\noutput:"))
    result = gobblin(root, "run")
    assert result.returncode == 2
    said = flat(result.stderr)
    assert "orders.yaml:7: outptu" in said
    assert "did you mean 'output'" in said.lower()
    assert "orders.yaml:8: commit.redo_limit" in said
    assert "often" in said


def test_missing_folder_is_named(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p")
    result = gobblin(root, "run")
    assert result.returncode == 1
    assert str(root / "data") in flat(result.stderr)


def test_empty_folder_says_that_no_file_matches(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p")
    (root / "data").mkdir()
    result = gobblin(root, "run")
    assert result.returncode == 1
    assert "no file matches" in flat(result.stderr)


def test_output_below_a_file_cannot_be_written_and_is_named(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p", JOB.replace("lake", "taken/lake"))
    put(root, "a/2026-01-01.csv", HEAD + "1,2.5\n")
    (root / "taken").write_text("a file, not a folder")
    result = gobblin(root, "run")
    assert result.returncode == 1
    assert str(root / "taken") in flat(result.stdout), "each dataset stands alone: the plan says it of this one"


def test_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p")
    put(root, "a/2026-01-01.csv", HEAD + "1,2.5\n")
    assert gobblin(root, "state", "list").returncode == 0
    database = root / ".gobblin" / "state.db"
    with sqlite3.connect(database) as connection:
        (table,) = connection.execute(
            "select name from sqlite_master where type = 'table' and name like '%version%'"
        ).fetchone()
        connection.execute(f"update {table} set version_num = '9999'")
    before = _dump(database)
    result = gobblin(root, "run")
    assert result.returncode == 1
    assert "store-version" in result.stderr
    assert "9999" in result.stderr
    assert _dump(database) == before


def _dump(database: Path) -> list[str]:
    connection = sqlite3.connect(database)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


@pytest.mark.spark
def test_bad_files_fail_their_own_dataset_and_are_named(tmp_path: Path) -> None:
    root = make_project(
        tmp_path / "p", JOB.replace("commit", "#").replace("output", "commit: {policy: successful}\noutput"), WITH_SPARK
    )
    put(root, "good/2026-01-01.csv", HEAD + "1,2.5\n2,3.5\n")
    put(root, "short row/2026-01-01.csv", HEAD + "1,2.5\n2\n")
    put(root, "no amount/2026-01-01.csv", "id,price\n1,2.5\n")
    put(root, "nothing/2026-01-01.csv", "")
    put(root, "ü…/2026-01-01.csv", HEAD + "1,2.5\n")
    put(root, "_a%2Fb.c/2026-01-01.csv", HEAD + "7,1\n")
    result = gobblin(root, "run")
    assert result.returncode == 4, result.stderr
    said = flat(result.stderr + result.stdout)
    assert "Dataset 'short row', file data/short row/2026-01-01.csv, row 2" in said
    assert "Dataset 'no amount', file data/no amount/2026-01-01.csv" in said
    assert "expected the column(s) amount" in said
    assert "Dataset 'nothing', file data/nothing/2026-01-01.csv" in said
    states = json.loads(gobblin(root, "state", "list", "--output", "json").stdout)
    assert "short row" not in json.dumps(states)
    assert sorted(path.name for path in (root / "lake/shop/orders/main").iterdir()) == [
        "%5Fa%252Fb.c",
        "%C3%BC%E2%80%A6",
        "good",
    ]
    put(root, "short row/2026-01-01.csv", HEAD + "1,2.5\n2,9\n")
    (root / "gobblin.yaml").write_text(WITHOUT_SPARK)
    again = gobblin(root, "run", "--select", "short row")
    assert again.returncode == 0, again.stderr
    assert pq.read_table(root / "lake/shop/orders/main/short%20row").num_rows == 2


def test_half_a_parquet_file_is_named_and_published_once_it_is_whole(tmp_path: Path) -> None:
    job = JOB.replace(".csv", ".parquet").replace(
        "{type: csv, columns: {id: int64, amount: float64}}", "{type: parquet}"
    )
    root = make_project(tmp_path / "p", job)
    (root / "data/a").mkdir(parents=True)
    file = root / "data/a/2026-01-01.parquet"
    pq.write_table(pa.table({"id": list(range(1000))}), file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    result = gobblin(root, "run")
    assert result.returncode == 1
    said = flat(result.stderr + result.stdout)
    assert "Dataset 'a', file data/a/2026-01-01.parquet" in said
    assert "Parquet" in said
    assert not list((root / "lake").glob("shop/**/*.parquet"))
    file.write_bytes(whole)
    assert gobblin(root, "run").returncode == 0
    assert pq.read_table(root / "lake/shop/orders/main/a").num_rows == 1000


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a disk of 256 KiB cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    # Lazily: a process that is still ending may hold a file of it.
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_full_disk_while_staging_fails_the_dataset_and_loses_nothing(tmp_path: Path, tiny_disk: Path) -> None:
    root = make_project(tmp_path / "p", JOB.replace("lake", str(tiny_disk / "lake")))
    rows = "".join(f"{i},{i * 7919 % 100003 / 7}\n" for i in range(60_000))
    put(root, "big/2026-01-01.csv", HEAD + rows)
    put(root, "small/2026-01-01.csv", HEAD + "1,2.5\n")
    result = gobblin(root, "run")
    assert result.returncode in (1, 4)
    said = flat(result.stderr + result.stdout)
    assert "Dataset 'big'" in said
    assert "No space left on device" in said
    assert not list(tiny_disk.glob("lake/shop/orders/main/big/*"))
    subprocess.run(["mount", "-o", "remount,size=64m", tiny_disk], check=True)
    assert gobblin(root, "run").returncode == 0
    assert pq.read_table(tiny_disk / "lake/shop/orders/main/big").num_rows == 60_000


def test_two_runs_at_the_same_moment_publish_every_row_once(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p")
    for number in range(6):
        put(root, f"d{number}/2026-01-01.csv", HEAD + "".join(f"{i},1\n" for i in range(1000)))
    runs = [
        subprocess.Popen([*GOBBLIN, "run"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [run.communicate(timeout=180)[0] for run in runs]
    codes = [run.returncode for run in runs]
    assert 0 in codes or codes == [4, 4], said
    for number in range(6):
        assert pq.read_table(root / f"lake/shop/orders/main/d{number}").num_rows == 1000
    for code, text in zip(codes, said, strict=True):
        if code != 0:
            assert "held by run" in flat(text) or "planned from version" in flat(text), text
    assert gobblin(root, "run").returncode == 0


def test_full_disk_behind_standard_error_stops_no_other_job(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p")
    put(root, "a/2026-01-01.csv", HEAD + "1,2.5\n")
    (root / "jobs" / "broken.yaml").write_text(
        JOB.replace("job: orders", "job: broken").replace("data/", "nothing/").replace("lake", "other")
    )
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*GOBBLIN, "run", "--output", "json"], cwd=root, stdout=subprocess.PIPE, stderr=full, check=False
        )
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"]) == (4, 4)
    assert {job["job"]: job["status"] for job in document["jobs"]} == {"broken": "failed", "orders": "succeeded"}


def test_reader_of_the_output_that_ends_ends_no_run(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p")
    put(root, "a/2026-01-01.csv", HEAD + "1,2.5\n2,3.5\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run([*GOBBLIN, "run"], cwd=root, stdout=gone, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, b"error[" in done.stderr, b"Traceback" in done.stderr) == (1, False, False)
    assert sum(pq.read_metadata(file).num_rows for file in (root / "lake").glob("**/*.parquet")) == 2
    assert [path for path in (root / "lake/_gobblin/staging").glob("*") if path.is_dir()] == []
    (log,) = (root / ".gobblin/logs").glob("run-*.jsonl")
    assert "This is a bug" not in log.read_text()
