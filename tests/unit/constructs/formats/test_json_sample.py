from __future__ import annotations

from pathlib import Path

from gobblin_dagster.constructs.formats.base import InputFile
from gobblin_dagster.constructs.formats.json_blocks import blocks
from gobblin_dagster.constructs.formats.json_sample import JsonSample


def look(root: Path, *texts: str, most_bytes: int = 1 << 20, include: tuple[str, ...] = ()) -> JsonSample:
    sample = JsonSample(blocks, 1 << 10, {"known"}, ("id", "Name"), include)
    for number, text in enumerate(texts):
        (root / f"{number}.jsonl").write_text(text)
        sample.look(InputFile(str(root / f"{number}.jsonl")), most_bytes)
    return sample


def test_fields_of_all_files_are_collected_without_the_settled_ones(tmp_path: Path) -> None:
    sample = look(tmp_path, '{"a": 1, "known": 1}\n', '{"b": {"c": 1.5}}\n\n{"a": 2}\n')
    assert (sample.files, sample.rows, sample.bytes_read) == (2, 3, 49)
    assert sample.types() == {"a": "int64", "b": '{"c": "float64"}'}


def test_only_included_fields_are_guessed(tmp_path: Path) -> None:
    assert look(tmp_path, '{"a": 1, "b": 2}\n', include=("b", "known")).types() == {"b": "int64"}


def test_looking_ends_behind_the_bytes_asked_for(tmp_path: Path) -> None:
    sample = look(tmp_path, '{"a": 1}\n' * 10_000 + '{"b": 1}\n', most_bytes=5000)
    assert sample.types() == {"a": "int64"}
    assert sample.rows < 1000


def test_lines_that_are_no_objects_end_the_look_at_their_file(tmp_path: Path) -> None:
    sample = look(tmp_path, '{"a": 1}\n[1]\n{"b": 2}\n', '{"c": 1}\n{"d"\n', '{"e": 1}\n')
    assert set(sample.types()) == {"a", "b", "c", "e"}


def test_declared_fields_that_no_row_has_are_named(tmp_path: Path) -> None:
    assert look(tmp_path, '{"name": 1}\n').hints() == [
        "no row that was looked at has 'id', 'Name', which `columns` declares (the case of letters counts)."
    ]
    assert look(tmp_path, '{"Name": 1}\n', '{"id": 1}\n').hints() == []
    assert look(tmp_path, "").hints() == []
