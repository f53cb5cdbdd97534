"""What a work unit's process knows by the settings that it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.secrets import forget, hidden, remember
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.engine.task.context import RunContext
from tests.unit.engine.jobs import job_spec, project


def test_work_units_hide_variables_that_only_the_project_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasons of rejected rows and task states are written by their process; the driver does not read them before."""
    monkeypatch.setenv("STAMP", "zaunkoenig-6143")
    remember({"zaunkoenig-6143": "${STAMP}", "of a file": "${NOT_SET}"})
    job = job_spec({"a": {"rows": 2}})
    context = to_json(project(tmp_path, job).run_context(job, "run-1"))
    forget()
    from_json(RunContext, context).make_secrets_known()
    assert hidden("zaunkoenig-6143 of a file") == "${STAMP} of a file"
    assert "zaunkoenig-6143" not in context
