from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.formats.base import FormatError, InputFile
from gobblin_dagster.constructs.sources.files.extractor import translated_errors
from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.errors import ExtractError, TransientError
from gobblin_dagster.storage.file_facts import FileFacts
from tests.unit.constructs.formats.reading import extractor, peak_bytes, put


def test_file_that_changed_since_the_plan_is_refused_with_both_sizes(tmp_path: Path) -> None:
    put(tmp_path, one_csv=b"a\n1\n", two_csv=b"a\n1\n")
    reader = extractor(tmp_path, "one.csv", "two.csv", type="csv")
    put(tmp_path, two_csv=b"a\n1\n2\n")
    with pytest.raises(ExtractError, match=r"file two\.csv: .*planned 4 bytes, found 6\. Run again"):
        list(reader.chunks())


def test_file_that_is_gone_since_the_plan_is_named(tmp_path: Path) -> None:
    put(tmp_path, one_csv=b"a\n1\n", two_csv=b"a\n1\n")
    reader = extractor(tmp_path, "one.csv", "two.csv", type="csv")
    (tmp_path / "two.csv").unlink()
    with pytest.raises(ExtractError, match=r"Dataset 'AA', file two\.csv: is gone since it was planned"):
        list(reader.chunks())
    reader.close()


def test_pipe_that_took_a_file_s_place_after_its_look_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, one_csv=b"a\n1\n")
    looked = InputFile.look

    def look_and_replace(file: InputFile) -> FileFacts:
        found = looked(file)
        (tmp_path / "one.csv").unlink()
        os.mkfifo(tmp_path / "one.csv")
        return found

    monkeypatch.setattr(InputFile, "look", look_and_replace)
    with pytest.raises(ExtractError, match=r"file one\.csv: is gone since it was planned"):
        list(extractor(tmp_path, "one.csv", type="csv").chunks())


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="a file of Linux")
def test_file_of_the_kernel_that_says_that_it_is_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.csv").symlink_to("/proc/self/pagemap")
    with pytest.raises(FormatError, match="says that it is empty, and is not"):
        InputFile(str(tmp_path / "one.csv")).open_text()


def test_link_that_leads_out_between_its_check_and_its_reading_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("in", "other"):
        (tmp_path / name).mkdir()
        put(tmp_path / name, x_csv=b"a\n1\n")
    link = tmp_path / "two.csv"
    link.symlink_to("in/x.csv")
    opened = InputFile.open_raw

    def lead_out_and_open(file: InputFile) -> pa.NativeFile:
        link.unlink()
        link.symlink_to("other/x.csv")
        try:
            return opened(file)
        finally:
            link.unlink()
            link.symlink_to("in/x.csv")

    monkeypatch.setattr(InputFile, "open_raw", lead_out_and_open)
    with pytest.raises(ExtractError, match=r"file two\.csv: leads to another file than a moment ago"):
        extractor(tmp_path, "two.csv", type="csv", allow=AllowLists(paths=(str(tmp_path / "in"),)))
    assert extractor(tmp_path, "two.csv", type="csv").schema.names == ["a"]


@pytest.mark.parametrize(
    ("fault", "raised", "problem"),
    [
        (PermissionError(13, "Permission denied"), ExtractError, "Permission denied"),
        (TimeoutError("no answer"), TransientError, "no answer"),
        (ConnectionResetError("reset by peer"), TransientError, "reset by peer"),
        (pa.ArrowInvalid("bad\nDetail: long"), ExtractError, "cannot be read: bad$"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_fault_of_a_file_is_raised_with_dataset_and_file(
    fault: Exception, raised: type[Exception], problem: str
) -> None:
    with pytest.raises(raised, match=problem) as caught, translated_errors("AA", "one.csv"):
        raise fault
    assert "one.csv" in str(caught.value)
    assert caught.value.__cause__ is fault


def test_memory_stays_flat_while_a_file_is_far_larger_than_a_block(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"a,b\n" + b"some text,2013-01-01\n" * 800_000)
    peak = peak_bytes(tmp_path, "day.csv", type="csv", block_bytes=1 << 16)
    assert peak < (tmp_path / "day.csv").stat().st_size / 4
