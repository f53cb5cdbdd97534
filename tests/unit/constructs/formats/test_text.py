from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.formats.base import InputFile
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ExtractError, InvalidSpecError
from tests.unit.constructs.formats.reading import file_format, put, read


def lines(root: Path, name: str, block_bytes: int = 1 << 20, **options: Any) -> list[str]:
    table = read(root, name, block_bytes=block_bytes, type="text", **options)
    if not table.num_rows:
        return []
    assert table.column("_row").to_pylist() == list(range(1, table.num_rows + 1))
    found: list[str] = table.column(options.get("column", "line")).to_pylist()
    return found


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 1 << 20])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\n\xc3\xbc\n", ["a", "", "ü"]),
        (b"a\r\nb\rc", ["a", "b\rc"]),
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
    ],
    ids=["empty", "blank", "blank in the middle", "carriage returns", "signature"],
)
def test_each_line_is_a_row(tmp_path: Path, content: bytes, expected: list[str], block_bytes: int) -> None:
    put(tmp_path, day_txt=content)
    assert lines(tmp_path, "day.txt", block_bytes) == expected


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 1 << 20])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\n", []),
        (b"\na\n", ["a"]),
        (b"\n\na\n\n", ["", "a", ""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\r\na", ["", "a"]),
        (b"a", ["a"]),
    ],
)
def test_empty_line_at_the_beginning_may_be_left_out(
    tmp_path: Path, content: bytes, expected: list[str], block_bytes: int
) -> None:
    put(tmp_path, day_txt=content)
    assert lines(tmp_path, "day.txt", block_bytes, empty_first_line=False) == expected


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 1 << 20])
@pytest.mark.parametrize("content", [b"", b"\r", b"a\rb\r\n\r\rc\n\r\nd\r", b"\r\n\n\xc3\xbc\rx"])
def test_single_carriage_return_may_end_a_line(tmp_path: Path, content: bytes, block_bytes: int) -> None:
    put(tmp_path, day_txt=content)
    expected = list(io.TextIOWrapper(io.BytesIO(content), "utf-8"))
    found = lines(tmp_path, "day.txt", block_bytes, line_end="any")
    assert found == [line.removesuffix("\n") for line in expected]


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", exclude_categories=["Cs"])), max_size=20),
    st.integers(1, 9),
)
def test_lines_of_any_encoding_come_back(texts: list[str], block_bytes: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        put(Path(folder), day_txt="".join(f"{text}\n" for text in texts).encode("utf-16-le"))
        longest = max(map(len, texts), default=0)
        assert lines(Path(folder), "day.txt", max(block_bytes, longest // 8), encoding="utf-16-le") == texts


def test_column_may_be_named(tmp_path: Path) -> None:
    put(tmp_path, day_txt=b"a\n")
    assert lines(tmp_path, "day.txt", column="message") == ["a"]


def test_row_that_is_no_text_is_named(tmp_path: Path) -> None:
    put(tmp_path, day_txt=b"a\n" * 1000 + b"b\xff\n" + b"c\n" * 9)
    with pytest.raises(ExtractError, match=r"no text in utf-8.*set `encoding`") as caught:
        lines(tmp_path, "day.txt", 100)
    assert caught.value.row == 1001
    assert lines(tmp_path, "day.txt", encoding="latin-1")[1000] == "bÿ"


def test_file_without_line_ends_does_not_fill_the_memory(tmp_path: Path) -> None:
    put(tmp_path, day_txt=b"a\n" + b"x" * 100_000)
    with pytest.raises(ExtractError, match=r"longer than .*execution\.block_bytes") as caught:
        lines(tmp_path, "day.txt", 1000)
    assert caught.value.row == 2


def test_rows_are_counted_and_an_unknown_encoding_refused(tmp_path: Path) -> None:
    context = ConstructContext(job="flights", base_dir=str(tmp_path))
    put(tmp_path, day_txt=b"a\n\nb")
    assert file_format({"type": "text"}, context).count_rows(InputFile(str(tmp_path / "day.txt"))) == 3
    for name in ("klingon", "base64"):
        with pytest.raises(InvalidSpecError, match=f"no encoding '{name}'"):
            file_format({"type": "text", "encoding": name}, context)
