"""`gobblin init --source`: jobs for the user's own data, from a look at it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml

from gobblin_dagster.core.errors import TransientError
from tests.unit.cli.conftest import Cli, cli

__all__ = ["cli"]


def put(root: Path, **files: str) -> None:
    """Write files whose names have `__` for `/` and `_csv` for `.csv`."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_csv", ".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def jobs(project: Path) -> dict[str, Any]:
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted((project / "jobs").glob("*.yaml"))}


def test_files_without_a_header_are_named_and_init_says_where_work_runs(cli: Cli, tmp_path: Path) -> None:
    bare, years = '1,00148,"O\'Brien",218.92,2021-04-02\n2,00149,x,1.5,2021-04-03\n', "land,2019,2020\nAT,1,2\n"
    put(tmp_path / "in", a_csv=bare, b_csv=years)
    out = " ".join(cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").out.split())
    assert "1 file(s), as a.csv, begin with values in place of names" in out
    assert "Work runs in " in out  # in Spark if an earlier test of this process has started it


def test_names_of_columns_reach_the_terminal_without_control_characters(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "in", a_csv='"a\nb","c\x1b[2J"\n1,x\n')
    out = cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").out
    assert "int64: a\\nb; text: c\\x1b[2J" in out


def planned(cli: Cli, project: Path) -> dict[str, Any]:
    document = cli("-C", project, "plan", "-o", "json").json()
    return {one["dataset"]: one["inferred"] for job in document["jobs"] for one in job["datasets"]}


def test_folder_of_different_files_has_a_dataset_for_each(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "in", cars_csv="mpg;name\n21.5;fiat\nNA;seat\n", rows_csv="id;zip\n1;007\n")
    called = cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in")
    assert (called.code, called.err) == (0, "")
    assert "types inferred from 2 rows of 1 file: float64: mpg; text: name." in " ".join(called.out.split())
    source = jobs(tmp_path / "p")["in"]["source"]
    assert source["path"] == f"{tmp_path}/in/{{dataset}}.csv"
    assert source["format"] == {"type": "csv", "delimiter": ";", "null_values": ["", "NA"]}
    assert planned(cli, tmp_path / "p") == {
        "cars": {"mpg": "float64", "name": "string"},
        "rows": {"id": "int64", "zip": "string"},
    }


@pytest.mark.parametrize(
    ("files", "pattern", "datasets"),
    [
        ({"a__2026-01-01_csv": "x\n1\n", "b__2026-01-02_csv": "y\n1\n"}, "{dataset}/{date:%Y-%m-%d}.csv", {"a", "b"}),
        ({"n__a__20260101_csv": "x\n1\n", "b__20260102_csv": "x\n1\n"}, "{dataset:**}/{date:%Y%m%d}.csv", {"n/a", "b"}),
        ({"one_csv": "x\n1\n", "two_csv": "x\n2\n"}, "*.csv", {"p.in"}),
        ({"a__one_csv": "x\n1\n", "a__two_csv": "x\n2\n", "b__one_csv": "y\n1\n"}, "{dataset}/*.csv", {"a", "b"}),
        ({"a__one_csv": "x\n1\n", "a__two_csv": "y\n2\n"}, "a/{dataset}.csv", {"one", "two"}),
        ({"one_csv": "x\n1\n", ".git__a_csv": "y\n", "_made__b_csv": "z\n"}, "{dataset}.csv", {"one"}),
    ],
)
def test_layout_of_a_folder_becomes_a_pattern(
    cli: Cli, tmp_path: Path, files: dict[str, str], pattern: str, datasets: set[str]
) -> None:
    put(tmp_path / "in", **files)
    assert cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").code == 0
    (job,) = jobs(tmp_path / "p").values()
    assert job["source"]["path"] == f"{tmp_path}/in/{pattern}"
    assert set(planned(cli, tmp_path / "p")) == datasets


def test_comments_decimal_commas_and_days_are_found(cli: Cli, tmp_path: Path) -> None:
    put(
        tmp_path / "in",
        de_csv="# made by X\n# 2024\nid;preis;tag;um;n\n1;1,50;31.01.2024;31.01.2024 10:00;1.000\n2;2;01.02.2024;;5\n",
        us_csv="id,d\n1,01/31/2024\n2,02/01/2024\n",
        hash_csv="#id,d\n1,02/01/2024\n",
        iso_csv="id,d\n1,2024-02-01\n",
    )
    assert cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").code == 0
    german = {"delimiter": ";", "comment": "#", "decimal_point": ",", "date_format": "%d.%m.%Y"}
    source = jobs(tmp_path / "p")["in"]["source"]
    assert source["format"] == {"type": "csv", "dialects": {"de": german, "us": {"date_format": "%m/%d/%Y"}}}
    assert "# Days like 01/02/2024 are texts in 1 file(s), as hash.csv" in (tmp_path / "p/jobs/in.yaml").read_text()
    assert planned(cli, tmp_path / "p") == {
        "de": {"id": "int64", "preis": "float64", "tag": "date", "um": "timestamp_ntz", "n": "string"},
        "us": {"id": "int64", "d": "date"},
        "hash": {"#id": "int64", "d": "string"},
        "iso": {"id": "int64", "d": "date"},
    }


def test_folders_may_have_names_that_jobs_may_not(cli: Cli, tmp_path: Path) -> None:
    folder, target = tmp_path / "2024-01", tmp_path / "my-lake"
    put(folder, **{"x_csv": "n\n1\n", "東京__y_csv": "z\n1\n", f"{'a' * 70}__z_csv": "w\n1\n"})
    called = cli("init", target, "--source", "files", "--from", folder)
    assert (called.code, called.err) == (0, "")
    made = jobs(target)
    assert set(made) == {"data_2024_01", "data", "a" * 40}
    assert {job["extract"]["namespace"] for job in made.values()} == {"my_lake"}
    assert set(planned(cli, target)) == {"x", "y", "z"}
    kafka = tmp_path / "2-topics"
    assert cli("init", kafka, "--source", "kafka", "--from", "localhost:9092").code == 0
    assert cli("-C", kafka, "check").code == 0


def test_names_of_files_add_nothing_to_a_job(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "in", a_csv="x\n1\n")
    (tmp_path / "in" / "b.x\ndescription: theirs").touch()
    assert cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").code == 0
    (job,) = jobs(tmp_path / "p").values()
    assert "description" not in job
    assert "\\ndescription: theirs" in (tmp_path / "p" / "jobs" / "in.yaml").read_text()


def test_each_format_of_a_folder_has_a_job_of_its_own(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "in", a_csv="x\n1\n", a__b__c_csv="y\n1\n", a_b__c_csv="z\n1\n")
    (tmp_path / "in" / "b.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "in" / "c.txt").write_text("text\n")
    assert cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").code == 0
    made = jobs(tmp_path / "p")
    assert set(made) == {"in_csv", "a_b_csv", "a_b_csv_2", "in_jsonl", "in_text"}
    assert all((job["job"], job["extract"]["table"]) == (name, name) for name, job in made.items())
    assert set(planned(cli, tmp_path / "p")) == {"a", "b", "c"}


def test_files_of_json_are_lines_or_documents_or_left_out(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "in")
    (tmp_path / "in").mkdir()
    texts = {
        "a": '{"x": 1}\n{"x": 2}\n',
        "b": '{"y": 1}\n',
        "c": '[\n{"x": 1}]',
        "d": '{"n": 1,\n "data": {"of": [1], "items": [{"z": 1}]}}',
        "e": '{"next": null, "data": {"items": [{"z": 1}, {"z": 2}]}}',
        "f": '{"one": [{"z": 1}],\n "two": [{"z": 1}]}',
    }
    for name, text in texts.items():
        (tmp_path / "in" / f"{name}.json").write_text(text)
    (tmp_path / "in" / "g.xml").touch()
    called = cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in")
    assert (called.code, called.err) == (0, "")
    found = {name: job["source"] for name, job in jobs(tmp_path / "p").items()}
    formats = {(one["path"].rpartition("/")[2], json.dumps(one["format"])) for one in found.values()}
    assert formats == {
        ("{dataset:a,b}.json", '{"type": "jsonl"}'),
        ("{dataset:c}.json", '{"type": "json"}'),
        ("{dataset:d,e}.json", '{"type": "json", "records": "data.items"}'),
    }
    said = "".join(path.read_text() for path in (tmp_path / "p" / "jobs").iterdir())
    assert "# Left out, 2 file(s) of no known format: 1 (one JSON document), 1 (.xml), as f.json. Documents" in said


def test_names_may_hold_what_patterns_are_made_of(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "in {2024} [new]?"
    put(folder, **{"a*_csv": "x\n1\n", "ab_csv": "y\n1\n", "c{d}_csv": "z;w\n1;2\n", "{e}*__f?[1]_csv": "v\n1\n"})
    called = cli("init", tmp_path / "p", "--source", "files", "--from", folder)
    assert (called.code, called.err) == (0, "")
    assert planned(cli, tmp_path / "p") == {
        "a*": {"x": "int64"},
        "ab": {"y": "int64"},
        "c{d}": {"z": "int64", "w": "int64"},
        "f?[1]": {"v": "int64"},
    }


def test_plan_that_fails_is_the_end_of_the_command(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "in", a_csv="x\n1\n")

    def fails(*_: object, **__: object) -> None:
        raise TransientError(problem="the disk is away")

    monkeypatch.setattr("gobblin_dagster.engine.run.job_run.plan_job", fails)
    called = cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in")
    assert called.code == 1
    assert "the disk is away" in called.err
    assert "correct the job files until gobblin plan has no error" in called.out


def test_files_that_are_written_otherwise_have_a_dialect(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "in", a_csv="id,name\n1,x\n", b_csv="id,name\n2,y\n", german_csv="\n\nid;betrag\n1;2\n")
    (tmp_path / "in" / "windows.csv").write_bytes("id,name\n1,J\xfcrgen \u20ac\n".encode("cp1252"))
    (tmp_path / "in" / "utf16.csv").write_bytes("id;name\n1;\u017dofie\n".encode("utf-16"))
    assert cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").code == 0
    (job,) = jobs(tmp_path / "p").values()
    assert job["source"]["format"] == {
        "type": "csv",
        "dialects": {
            "german": {"delimiter": ";"},
            "windows": {"encoding": "cp1252"},
            "utf16": {"delimiter": ";", "encoding": "utf-16"},
        },
    }
    types = {"id": "int64", "name": "string"}
    assert planned(cli, tmp_path / "p") == {
        **dict.fromkeys(("a", "b", "windows", "utf16"), types),
        "german": {"id": "int64", "betrag": "int64"},
    }


def test_formats_and_compression_have_jobs_of_their_own(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "in", a_csv="x\n1\n")
    (tmp_path / "in" / "b.csv.gz").write_bytes(gzip.compress(b"x\n1\n"))
    (tmp_path / "in" / "c.jsonl").write_text('{"x": 1}\n')
    assert cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").code == 0
    paths = {job["source"]["path"].rpartition("/")[2] for job in jobs(tmp_path / "p").values()}
    assert paths == {"{dataset}.csv", "{dataset}.csv.gz", "{dataset}.jsonl"}
    assert cli("-C", tmp_path / "p", "check").code == 0


def test_tables_of_a_database_get_their_watermark_columns(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.executescript(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, updated_at DATETIME, note TEXT);"
        "CREATE TABLE items (id INTEGER PRIMARY KEY, modified DATETIME);"
        "CREATE TABLE people (id INTEGER PRIMARY KEY, updated_at DATETIME);"
        "CREATE TABLE log (id INTEGER PRIMARY KEY, text TEXT);"
        "CREATE TABLE codes (code TEXT, text TEXT);"
        "INSERT INTO orders VALUES (1, '2026-01-01 00:00:00', 'n'); INSERT INTO codes VALUES ('a', 'b');"
    )
    monkeypatch.chdir(tmp_path)
    called = cli("init", "p", "--source", "query", "--from", "sqlite:///shop.db")
    assert (called.code, called.err) == (0, "")
    made = jobs(tmp_path / "p")
    assert made["p"]["source"]["watermark"] == {"column": "updated_at", "type": "timestamp"}
    assert made["p"]["source"]["table_options"] == {
        "main.items": {"watermark": {"column": "modified", "type": "timestamp"}, "primary_key": ["id"]},
        "main.log": {"watermark": {"column": "id", "type": "long"}, "primary_key": ["id"]},
        "main.orders": {"primary_key": ["id"]},
        "main.people": {"primary_key": ["id"]},
    }
    assert made["p_whole"]["source"]["tables"] == ["main.codes"]
    assert set(planned(cli, tmp_path / "p")) == {"main.codes", "main.items", "main.log", "main.orders", "main.people"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "files"], "belong together"),
        (["--from", "x"], "belong together"),
        (["--source", "files", "--from", "nowhere"], "There is no folder"),
        (["--source", "files", "--from", "."], "No file in"),
        (["--source", "query", "--from", "postgresql://me:secret@host/db"], "holds a password"),
        (["--source", "query", "--from", "postgresql://me:sec/?#ret@host/db"], "holds a password"),
        (["--source", "query", "--from", "postgresql://me@corp.com:secret@host/db"], "holds a password"),
        (["--source", "query", "--from", "postgresql://host/db?user=me&password=secret"], "holds a password"),
        (["--source", "query", "--from", "${NOT_SET}"], "NOT_SET is not set"),
        (["--source", "query", "--from", "shop"], "is no database's URL"),
        (["--source", "rest", "--from", "shop"], "is no URL"),
        (["--source", "rest", "--from", "http://127.0.0.1:1/x"], "cannot be read as JSON"),
        (["--source", "rest", "--from", "http://127.0.0.1:1/x?api_key=abcdef"], "'api_key' holds a secret"),
        (["--source", "rest", "--from", "http://127.0.0.1:1/x?api_key=${NOT_SET}"], "NOT_SET is not set"),
        (["--source", "rest", "--from", "http://127.0.0.1:1/x?tag=a&tag=b"], "'tag' stands in the URL more than once"),
        (["--source", "rest", "--from", "http://me:secret@127.0.0.1:1/x"], "The URL holds a user or a password"),
        (["--source", "rest", "--from", "http://127.0.0.1:1/x", "--header", "X-Key=NOT_SET"], "NOT_SET is not set"),
        (["--source", "rest", "--from", "http://127.0.0.1:1/x", "--header", "X-Key"], "names no variable"),
    ],
)
def test_what_cannot_be_looked_at_is_said(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    called = cli("init", "p", *arguments)
    assert (called.code, message in called.err) == (2, True), called.err
    assert not (tmp_path / "p" / "jobs").exists()


def test_broker_gets_a_job_to_be_completed(cli: Cli, tmp_path: Path) -> None:
    assert cli("init", tmp_path / "p", "--source", "kafka", "--from", "localhost:9092").code == 0
    assert cli("-C", tmp_path / "p", "check").code == 0
    assert jobs(tmp_path / "p")["p"]["source"]["brokers"] == "localhost:9092"


def test_types_that_datasets_share_are_told_once(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "in", a_csv="id;zip\n1;007\n", b_csv="id;zip\n2;008\n3;009\n", c_csv="mpg;name\n1.5;fiat\n")
    assert cli("init", tmp_path / "p", "--source", "files", "--from", tmp_path / "in").code == 0
    said = " ".join(cli("-C", tmp_path / "p", "plan").out.split())
    assert "a and 1 more dataset: types inferred: int64: id; text: zip." in said
    assert "c: types inferred from 1 row of 1 file: float64: mpg; text: name." in said
    assert said.count("int64: id") == 1
