"""Gobblin's templates: which keys they ask for, what they inherit, and where values go."""

from __future__ import annotations

from pathlib import Path

from gobblin_dagster.spec.gobblin.template import GobblinTemplate, job_yaml, read_template


def read(folder: Path, name: str) -> GobblinTemplate:
    return read_template(folder / name, folder, lambda path: path.name)


def test_keys_that_are_asked_for_are_parameters(tmp_path: Path) -> None:
    (tmp_path / "a.template").write_text('gobblin.template.required_attributes = "x,y"\ny = 5\nk = ${z.z}${HOME}${w}\n')
    assert dict(read(tmp_path, "a.template").parameters) == {"x": None, "y": "5", "w": None, "z.z": None}


def test_nearer_keys_win_over_inherited_ones_and_needs_are_inherited(tmp_path: Path) -> None:
    (tmp_path / "far.template").write_text("gobblin.template.required_attributes = far\na = far\nb = far\n")
    (tmp_path / "mid.job").write_text("gobblin.template.inherit=far.template\nb=mid\nc=mid\n")
    (tmp_path / "near.conf").write_text('gobblin.template.uris = "mid.job"\nc = near\n')
    found = read(tmp_path, "near.conf")
    assert {name: found.entries[name].text for name in "abc"} == {"a": "far", "b": "mid", "c": "near"}
    assert dict(found.parameters) == {"far": None}


def test_values_are_found_through_keys_that_refer_to_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.job").write_text("extract.namespace=n\nname=${x}\nextract.table.name=${name}\n")
    found = read(tmp_path, "a.job")
    job = found.job({"x": "orders"})
    assert found.places_of(job, "x") == [("extract", "table")]
    assert "table: orders" in job_yaml(job)
