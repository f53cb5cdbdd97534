"""Values of variables in a job that fails under Dagster and Spark: in no database, log or event of a real instance."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]
SECRET = "kanarienvogel-7391"
IN_FILE = "wellensittich-5208"
UNNAMED = "papagei-8264"
"""In variables such as those that Dagster takes from `.env`; no file of the project names them."""
OF_PROJECT = "zaunkoenig-6143"
"""In a variable that only `gobblin.yaml` names, and whose name does not sound like a secret."""
DEFINITIONS = """
from pathlib import Path
from gobblin_dagster.orchestration import build_definitions
defs = build_definitions(Path(__file__).parent)
"""
# In one process, so that the jobs share one Spark.
EXECUTE = """
import sys
from dagster import DagsterInstance
from definitions import defs
with DagsterInstance.get() as instance:
    for name in sys.argv[1:]:
        print("begin", name, file=sys.stderr, flush=True)
        job = defs.get_job_def(f"{name}_job")
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success
        print("end", name, file=sys.stderr, flush=True)
"""
FAILING: dict[str, dict[str, Any]] = {
    "planned": {"converters": [{"type": "sql", "select": "*, '${CANARY}' AS z, nope AS y"}]},
    "in_a_task": {
        "converters": [
            {"type": "hash", "columns": ["name"], "key_env": "FROM_FILE"},
            {"type": "sql", "select": "*, CAST('${CANARY}' || '${FROM_FILE}' || name AS INTEGER) AS z"},
        ]
    },
    "broken": {"row_policies": [{"type": "sql", "name": "r", "rule": "name = '${CANARY}'", "on_violation": "fail"}]},
    "own_variable": {"converters": [{"type": "function", "function": "own:looks", "by": "record"}]},
    "unlisted": {"source": {"type": "python", "datasets": "own:ends", "read": "own:ends"}},
}
OWN = """
import os
def ends():
    raise ValueError("login with " + os.environ["CANARY"])
def looks(row):
    raise ValueError(" ".join(os.environ[name] for name in ("CANARY", "LAKE_TOKEN", "LAKE_URL", "STAMP")))
"""


def contents(file: Path) -> Iterator[bytes]:
    """Yield what a file holds; of a database also each text and each value that Dagster compressed."""
    content = file.read_bytes()
    yield content
    if not content.startswith(b"SQLite format 3"):
        return
    with closing(sqlite3.connect(file)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    if isinstance(value, bytes):
                        yield value
                        with suppress(zlib.error):
                            yield zlib.decompress(value)
                    yield str(value).encode()


def holds_secret(content: bytes) -> bool:
    return any(secret.encode() in content for secret in (SECRET, IN_FILE, UNNAMED, OF_PROJECT))


def test_secret_of_a_job_that_fails_is_in_no_file_of_the_instance_nor_of_the_project(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = tmp_path_factory.mktemp("elsewhere") / "secret.txt"
    kept.write_text(IN_FILE)
    home = tmp_path / "dagster_home"
    for folder in (home, tmp_path / "jobs", tmp_path / "in"):
        folder.mkdir()
    settings: dict[str, Any] = {"project": "leaky", "spark": {"conf": {"spark.hadoop.own.secret.key": "${CANARY}"}}}
    settings |= {"alerts": {"webhook_env": "STAMP", "runs": []}}
    settings |= {"secrets": {"FROM_FILE": {"file": str(kept)}}}
    (tmp_path / "gobblin.yaml").write_text(json.dumps(settings))
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    (tmp_path / "in" / "a.csv").write_text("id,name\n1,x\n2,y\n")
    for name, parts in FAILING.items():
        source = {"type": "files", "path": "in/*.csv", "format": "csv"}
        body: dict[str, Any] = {"job": name, "description": "of ${CANARY}", "source": source}
        body |= {"extract": {"namespace": "t", "table": name}, "output": {"path": "lake"}}
        (tmp_path / "jobs" / f"{name}.yaml").write_text(json.dumps(body | parts))
    environment = os.environ | {"DAGSTER_HOME": str(home), "CANARY": SECRET, "DAGSTER_DISABLE_TELEMETRY": "1"}
    environment |= {"LAKE_TOKEN": UNNAMED, "LAKE_URL": f"postgresql://lake:{UNNAMED}@h/lake", "STAMP": OF_PROJECT}
    (tmp_path / "execute.py").write_text(EXECUTE)
    command = [sys.executable, "execute.py", *FAILING]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for name in FAILING:
        told = said.split(f"begin {name}\n")[1].split(f"end {name}\n")[0]
        assert "failed" in told
        assert "${CANARY}" in told  # it failed for the expression, which is told
    assert SECRET not in said
    assert IN_FILE not in said
    assert UNNAMED not in said
    assert OF_PROJECT not in said
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"state.db", "spark.log", "runs.db", "index.db"} <= {file.name for file in files}
    assert any(file.suffix == ".err" for file in files)  # Dagster's compute logs
    assert [str(file) for file in files if any(holds_secret(part) for part in contents(file))] == []
