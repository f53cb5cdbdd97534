"""The page on Gobblin's keys: in step with the loader, its fields exist, and so do the tests that it names."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.spec.gobblin.classes import CONVERTERS, IN_FILES
from gobblin_dagster.spec.gobblin.keys import KEYS, Mark
from gobblin_dagster.spec.gobblin.lookup import known
from gobblin_dagster.spec.job import BranchSpec, ConverterSpec, JobSpec, RowPolicySpec, TaskPolicySpec

ROOT = Path(__file__).parents[2]
TESTS: dict[str, str] = runpy.run_path(str(ROOT / "scripts" / "gobblin_keys.py"))["TESTS"]
FIELDS = sorted({key.field for key in KEYS if key.field})
KINDS = {
    "source": ConstructKind.SOURCE,
    "writer": ConstructKind.WRITER,
    "converters": ConstructKind.CONVERTER,
    "row_policies": ConstructKind.ROW_POLICY,
    "task_policies": ConstructKind.TASK_POLICY,
}
TYPES = {**{name.rpartition(".")[2]: found for name, found in CONVERTERS.items()}, **IN_FILES}
"""What stands for a class that a field is named by."""
ITEMS: dict[str, type[BaseModel]] = {
    "converters": ConverterSpec,
    "row_policies": RowPolicySpec,
    "task_policies": TaskPolicySpec,
    "branches": BranchSpec,
}


def model_of(annotation: Any) -> Any:
    """Return the model inside optional and annotated types."""
    while get_origin(annotation) in (Union, types.UnionType):
        annotation = next(one for one in get_args(annotation) if one is not type(None))
    return annotation


def is_field(model: Any, path: list[str]) -> bool:
    for name in path:
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or name not in model.model_fields:
            return False
        model = ITEMS.get(name) or model_of(model.model_fields[name].annotation)
    return True


@pytest.mark.parametrize("field", FIELDS)
def test_field_of_a_key_exists(field: str) -> None:
    match = re.fullmatch(r"(\w+)\(([\w*]+)\)\.(.+)", field)
    if match is None:
        assert is_field(JobSpec, field.split("."))
        return
    slot, type_name, option = match.groups()
    if option in ITEMS.get(slot, BaseModel).model_fields:
        return  # of every construct of its kind
    for name in registry.file_formats() if type_name == "*" else [type_name]:
        model = registry.load(KINDS[slot], TYPES.get(name, name)).Options
        assert is_field(model, option.split(".")), name


@pytest.mark.parametrize("field", FIELDS)
def test_test_of_a_field_exists(field: str) -> None:
    path, _, name = TESTS[field].partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), TESTS[field]


def test_no_test_is_named_for_a_field_that_is_gone() -> None:
    assert sorted(set(TESTS) - set(FIELDS)) == []


def test_every_seed_or_common_key_that_is_not_carried_has_a_reason() -> None:
    assert [key.name for key in KEYS if not key.field and key.mark is not Mark.RARE and not key.note] == []


def test_page_is_in_step_with_the_loader() -> None:
    done = subprocess.run([sys.executable, "scripts/gobblin_keys.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "write it again: python scripts/gobblin_keys.py"


def test_keys_that_docstrings_name_are_known_to_the_loader() -> None:
    entries = runpy.run_path(str(ROOT / "scripts" / "gobblin_map.py"))["entries"]()
    named = {key for entry in entries for key in re.findall(r"`([a-z]+(?:\.[a-zA-Z_]+){1,})`", entry.source)}
    assert len(named) > 50
    assert sorted(key for key in named if not known(key) and not key.startswith("org.")) == []
