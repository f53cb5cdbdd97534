"""The examples, run as their READMEs say."""

from __future__ import annotations

import ast
import json
import os
import shutil
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow.dataset as ds
import pytest

import gobblin_dagster
from gobblin_dagster import open_project
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.e2e.test_from_python import masked

EXAMPLES = Path(__file__).parents[2] / "examples"
GOBBLIN = Path(sys.executable).with_name("gobblin")

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.slow]


def run(project: Path, **env: str) -> str:
    done = subprocess.run(
        [str(GOBBLIN), "run"],
        cwd=project,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(folder: Path, file_format: str) -> list[dict[str, object]]:
    paths = sorted(str(path) for path in folder.rglob(f"*.{file_format}"))
    found: list[dict[str, object]] = ds.dataset(paths, format=file_format).to_table().to_pylist()
    return found


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of all Avro files below a folder, as a reader of Avro that is not ours sees them."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*.avro")):
        with path.open("rb") as file:
            found.extend(cast("list[dict[str, Any]]", list(fastavro.reader(file))))
    return found


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name = request.param
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name))


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    with_servers = Path(__file__).parents[1] / "integration" / "kafka" / "test_service_example.py"
    assert with_servers.exists()  # runs "service"
    folders = [folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()]
    assert folders
    assert [name for name in folders if f'"{name}"' not in here] == []


@pytest.mark.parametrize("example", ["own_converter"], indirect=True)
def test_own_converter_replaces_accounts_and_keeps_equal_ones_equal(example: Path) -> None:
    run(example, PAYMENTS_KEY="a-key-for-tests")
    books = {row["id"]: row["account"] for row in rows(example / "lake/shops/payments/main/books", "parquet")}
    bikes = {row["id"]: row["account"] for row in rows(example / "lake/shops/payments/main/bikes", "parquet")}
    assert set(books) == {1, 2, 3, 4}
    assert books[1] == books[3] != books[2]
    assert books[2] == bikes[1]  # one account in two datasets
    assert books[4] is None
    assert not any(str(account).startswith("DE") for account in [*books.values(), *bikes.values()])
    assert "nothing to do" in run(example, PAYMENTS_KEY="a-key-for-tests")


@pytest.mark.parametrize("example", ["own_commit_step"], indirect=True)
def test_own_commit_step_announces_each_publication_once(example: Path) -> None:
    run(example)
    run(example)
    notes = [json.loads(path.read_text()) for path in (example / "lake/_inbox").iterdir()]
    assert [(note["dataset"], note["snapshot"], note["rows"]) for note in notes] == [("books", 1, 3)]
    published = [example / "lake" / file for file in notes[0]["files"]]
    assert {stat.S_IMODE(path.stat().st_mode) for path in published} == {0o640}


@pytest.mark.parametrize("example", ["routing"], indirect=True)
def test_routing_sends_each_row_one_way(example: Path) -> None:
    output = run(example)
    lake = example / "lake" / "plant" / "readings"
    assert {row["celsius"] for row in rows(lake / "alarms", "csv")} == {93.1, 95.8}
    assert {row["celsius"] for row in rows(lake / "normal", "parquet")} == {44.25, 71.5, 90.0}
    assert "rejected by test_signal: 1 row" in output
    assert "quarantine: 1 row" in output


@pytest.mark.parametrize("example", ["python_source"], indirect=True)
def test_python_source_reads_each_hour_of_each_port_once(example: Path) -> None:
    run(example)
    lake = example / "lake" / "coast" / "tides" / "main"
    for port, amplitude in {"brest": 2.05, "cuxhaven": 1.41}.items():
        heights = {row["hour"]: row["height_m"] for row in rows(lake / port, "parquet")}
        assert set(heights) == set(range(48))
        assert heights[0] == amplitude
    assert "nothing to do" in run(example)


@pytest.mark.parametrize("example", ["sensitive_data"], indirect=True)
def test_sensitive_data_is_purged_in_a_branch_of_its_own(example: Path) -> None:
    output = run(example)
    purged = records(example / "job-output/gobblin/example/purged")
    normal = records(example / "job-output/gobblin/example/normal")
    assert sorted((row["id"], row["name"], row["ssn"], row["card"]) for row in purged) == [
        (1, "Ann", None, None),
        (3, "Eve", None, None),
        (5, "Max", None, None),
    ]
    assert sorted((row["id"], row["name"], row["ssn"], row["card"]) for row in normal) == [
        (2, "Bob", None, None),
        (4, "Zoë", None, None),
    ]
    # Gobblin's own property file does the same.
    theirs = example / "gobblin/example/job-output"
    assert records(theirs / "purged/gobblin/example/fork_0") == purged
    assert records(theirs / "normal/gobblin/example/fork_1") == normal
    assert "mandatory_field_existence: 1 passed" in output
    # The policies of a branch take the place of the job's.
    assert "mandatory_fields: 1 passed" in output
    assert "row_count: 1 passed" in output


def test_notebook_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads((EXAMPLES / "notebook" / "flights.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    # Spark is tested by the other examples.
    monkeypatch.setattr(gobblin_dagster, "open_project", partial(open_project, runner=InlineRunner()))
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            value = value_of("".join(cell["source"]), names)
            (output,) = cell["outputs"]
            if "image/svg+xml" in output["data"]:
                assert [value._repr_svg_()] == output["data"]["image/svg+xml"]
            else:
                assert masked(repr(value)) == masked("".join(output["data"]["text/plain"]))


def value_of(cell: str, names: dict[str, Any]) -> Any:
    """Run a cell and return its last expression, which a notebook shows."""
    *statements, last = ast.parse(cell).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
