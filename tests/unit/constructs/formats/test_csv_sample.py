from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.formats.base import FileReader, InputFile, TypeSample
from gobblin_dagster.constructs.formats.csv import CsvFormat, CsvOptions
from gobblin_dagster.constructs.formats.csv_sample import CsvSample
from gobblin_dagster.constructs.formats.csv_spelling import Spelling
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.traits import ALL_WIDENINGS


def look(root: Path, *texts: str, most_bytes: int = 1 << 20, **options: object) -> TypeSample:
    context = ConstructContext(job="j", base_dir=str(root), block_bytes=1 << 10)
    sample = CsvFormat(CsvOptions.model_validate(options), context).sample({"known"})
    for number, text in enumerate(texts):
        (root / f"{number}.csv").write_text(text)
        sample.look(InputFile(str(root / f"{number}.csv")), most_bytes)
    return sample


def test_columns_of_all_files_are_guessed_without_declared_and_settled_ones(tmp_path: Path) -> None:
    sample = look(tmp_path, "a,known,d\n1,1,1\n", "b,a,d\nx,2.5,1\n", columns={"d": "string"})
    assert (sample.files, sample.rows) == (2, 2)
    assert sample.types() == {"a": "float64", "b": "string"}


def test_looking_ends_behind_the_bytes_asked_for(tmp_path: Path) -> None:
    sample = look(tmp_path, "a\n" + "1\n" * 100_000 + "x\n", most_bytes=5000)
    assert sample.types() == {"a": "int64"}
    assert sample.rows < 50_000


def test_hint_names_the_option_for_words_that_may_mean_null(tmp_path: Path) -> None:
    assert look(tmp_path, 'a,b\n1,""\n2,""\n').hints() == []
    assert look(tmp_path, 'a,b\n1,x\n"",""\n').hints() == [
        'if "" means null, set `quoted_nulls: true`; columns that would not be text: int64: a.'
    ]
    assert look(tmp_path, "a,b\n1,x\nNA,-\n").hints() == [
        'if "NA" means null, set `null_values: ["", "NA"]`; columns that would not be text: int64: a.'
    ]


def test_types_of_known_numbers_widen_and_others_stay(tmp_path: Path) -> None:
    context = ConstructContext(job="j", base_dir=str(tmp_path))
    known = {"a": "int64", "b": "date", "c": "int64", "d": "int64"}
    sample = CsvFormat(CsvOptions(columns={"d": "int64"}), context).widening(known, ALL_WIDENINGS)
    for number, text in enumerate(["a,b,c,d\n5.5,x,1,1\n", "e\n1\n", "", "a,d\n0.25,1\n"]):
        (tmp_path / f"{number}.csv").write_text(text)
        sample.look(InputFile(str(tmp_path / f"{number}.csv")), 1 << 20)
    assert sample.types() == {"a": "decimal(22, 2)", "b": "date", "c": "int64"}
    assert (sample.files, sample.rows) == (2, 2)


def test_decimals_get_digits_before_the_point_where_scales_must_stay(tmp_path: Path) -> None:
    known = {"a": "decimal(21, 1)", "b": "decimal(21, 1)", "c": "int64"}
    sample = CsvFormat(CsvOptions(), ConstructContext(job="j", base_dir=str(tmp_path))).widening(known, ())
    (tmp_path / "1.csv").write_text(f"a,b,c\n{'1' * 25},0.25,0.5\n")
    sample.look(InputFile(str(tmp_path / "1.csv")), 1 << 20)
    assert sample.types() == known | {"a": "decimal(26, 1)"}


@pytest.mark.parametrize(
    "error",
    [
        OSError("AWS Error NETWORK_CONNECTION during GetObject operation"),
        ConnectionResetError(),
        pa.ArrowMemoryError("malloc of size 8 failed"),
    ],
    ids=["S3", "connection", "memory"],
)
def test_error_that_may_not_come_again_settles_no_types(error: Exception) -> None:
    def broken(_: InputFile) -> FileReader:
        raise error

    sample = CsvSample(broken, "float64", (), Spelling())
    with pytest.raises(type(error)):
        sample.look(InputFile("s3://bucket/a.csv"), 1)
