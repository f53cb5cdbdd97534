"""What `dg scaffold defs` writes is loaded as it is: an example job, or a component of an existing project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster.components.testing import DefsFolderSandbox, create_defs_folder_sandbox

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.orchestration import GobblinJobComponent
from gobblin_dagster.orchestration.scaffold import ScaffoldParams
from tests.unit.orchestration.test_component import JOB


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


def scaffolded(sandbox: DefsFolderSandbox, **params: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the attributes that were written, and the assets that Dagster loads from them."""
    folder = sandbox.scaffold_component(GobblinJobComponent, scaffold_params=params)
    written: dict[str, Any] = yaml.safe_load((folder / "defs.yaml").read_text())
    with sandbox.build_all_defs() as defs:
        return written["attributes"], sorted(key.to_user_string() for key in defs.resolve_all_asset_keys())


def a_project(folder: Path) -> Path:
    (folder / "jobs").mkdir(parents=True)
    (folder / "gobblin.yaml").write_text("project: lakes\n")
    (folder / "jobs" / "numbers.yaml").write_text(JOB)
    (folder / "jobs" / "letters.yaml").write_text(JOB.replace("numbers", "letters"))
    return folder


def test_without_a_project_an_example_job_and_a_file_to_read_are_written(sandbox: DefsFolderSandbox) -> None:
    attributes, assets = scaffolded(sandbox)
    assert attributes["job"]["job"] == "letters"
    assert assets == ["files/data", "shop/letters/main"]
    assert [*sandbox.defs_folder_path.rglob("2024-01-01.csv")]


def test_nearest_project_is_named(sandbox: DefsFolderSandbox) -> None:
    a_project(sandbox.defs_folder_path.parent)
    attributes, assets = scaffolded(sandbox)
    assert [*attributes] == ["project"]
    assert assets == ["test/letters/main", "test/numbers/main"]


def test_project_and_job_are_chosen_by_options(sandbox: DefsFolderSandbox, tmp_path: Path) -> None:
    attributes, assets = scaffolded(sandbox, project=str(a_project(tmp_path / "lake")), job="letters")
    assert attributes["job"] == "letters"
    assert not Path(attributes["project"]).is_absolute()
    assert assets == ["test/letters/main"]


def test_folder_that_is_no_project_is_refused(sandbox: DefsFolderSandbox, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no gobblin\.yaml"):
        scaffolded(sandbox, project=str(tmp_path))


def test_options_describe_themselves() -> None:
    assert all(field.description for field in ScaffoldParams.model_fields.values())
