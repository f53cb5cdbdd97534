from __future__ import annotations

import io

from gobblin_dagster.constructs.formats.peek import LookedAt, without_comments


def test_stream_that_was_looked_at_is_read_again_from_its_beginning() -> None:
    looked = LookedAt(io.BytesIO(b"header and rows"))
    assert looked.read(6) == b"header"
    assert looked.beginning == b"header"
    again = looked.again()
    assert [again.read(4), again.read(4), again.read(100), again.read(1)] == [b"head", b"er a", b"nd rows", b""]


def test_closing_what_is_read_again_leaves_the_stream_open() -> None:
    stream = io.BytesIO(b"rows")
    again = LookedAt(stream).again()
    again.close()
    assert again.closed
    assert not stream.closed


def test_comments_longer_than_a_block_are_left_out() -> None:
    text = b"# " + b"x" * 200_000 + b"\n#\nid\n1\n"
    assert without_comments(io.BytesIO(text), "#", "utf-8").read(100) == b"id\n1\n"


def test_file_of_one_comment_without_an_end_is_not_read_whole() -> None:
    stream = io.BytesIO(b"#" * (3 << 20))
    without_comments(stream, "#", "latin-1")
    assert stream.tell() <= (1 << 20) + (1 << 16)
