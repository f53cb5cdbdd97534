from __future__ import annotations

import os
from pathlib import Path

import pytest

from gobblin_dagster.core.utils.regular_file import open_regular, read_regular, read_regular_text


def test_content_is_read_whole_and_as_text_with_one_kind_of_line_end(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    (tmp_path / "link").symlink_to(file)
    assert read_regular(tmp_path / "link") == b"\xef\xbb\xbfa\r\nb\rc\n"
    assert read_regular_text(file, "utf-8-sig") == "a\nb\nc\n"


def test_what_would_keep_its_reader_waiting_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero"), Path("/dev/tty0")):
        with pytest.raises(OSError, match=r"no regular file|No such"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
