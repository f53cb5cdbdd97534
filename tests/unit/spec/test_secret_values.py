"""Secrets from files and commands: looked up once, only if a job names them, and shown nowhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.spec.load import load_jobs
from gobblin_dagster.spec.project import ProjectSpec

JOB = """
job: shop
source: {type: files, path: "in/{dataset}.csv", format: csv}
extract: {namespace: shop, table: orders}
converters: [{type: add, columns: {word: "${WORD}"}}]
output: {path: lake}
"""


def loaded(root: Path, secret: dict[str, Any], environ: dict[str, str] | None = None) -> tuple[str, str]:
    """Return what the job's `${WORD}` is, and the errors."""
    (root / "jobs").mkdir(exist_ok=True)
    (root / "jobs/shop.yaml").write_text(JOB)
    project = ProjectSpec.model_validate({"project": "p", "secrets": {"WORD": secret, "OTHER": {"file": "nowhere"}}})
    jobs, errors = load_jobs(root, project, environ=environ or {})
    return "".join(job.spec.converters[0].options["columns"]["word"] for job in jobs), "".join(map(str, errors))


def test_value_comes_from_a_file_or_a_command_and_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "word.txt").write_text("from_file\n")
    assert loaded(tmp_path, {"file": "word.txt"}) == ("from_file", "")
    assert hidden("got from_file") == "got ${WORD}"

    command = [sys.executable, "-c", "import pathlib; print(pathlib.Path('word.txt').read_text().strip() + '_2')"]
    assert loaded(tmp_path, {"command": command}) == ("from_file_2", "")


def test_variable_that_is_set_goes_first(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"file": "nowhere"}, {"WORD": "from_environment"}) == ("from_environment", "")


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ({"file": "nowhere"}, "nowhere cannot be used: No such file or directory"),
        ({"command": ["no-such-program"]}, "no-such-program cannot be used: No such file or directory"),
        ({"command": [sys.executable, "-c", "print('s3cret'); exit(3)"]}, "ended with exit code 3"),
        ({"command": [sys.executable, "-c", ""]}, "gives no value"),
    ],
)
def test_what_cannot_be_looked_up_is_told_without_its_output(tmp_path: Path, secret: dict[str, Any], says: str) -> None:
    word, error = loaded(tmp_path, secret)
    assert word == ""
    assert "gobblin.yaml" in error
    assert f"secrets.WORD: {secret.get('file') or secret['command'][0]}" in error
    assert says in error
    assert "s3cret" not in error


def test_secret_has_one_place() -> None:
    with pytest.raises(ValidationError, match="expected either `file` or `command`"):
        ProjectSpec.model_validate({"project": "p", "secrets": {"WORD": {"file": "a", "command": ["b"]}}})


def test_what_cannot_be_looked_up_is_asked_once_for_all_job_files(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/another.yaml").write_text(JOB.replace("job: shop", "job: another"))
    count = "import pathlib; pathlib.Path('asked').open('a').write('x'); exit(3)"
    _, errors = loaded(tmp_path, {"command": [sys.executable, "-c", count]})
    assert errors.count("ended with exit code 3") == 2
    assert (tmp_path / "asked").read_text() == "x"
