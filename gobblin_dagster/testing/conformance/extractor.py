"""Tests that every extractor must pass; `source.py` runs them on the extractors of a source's work units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.core.constructs import Extractor, PositionedExtractor
from gobblin_dagster.testing.conformance.base import Conformance, to_override
from gobblin_dagster.testing.conformance.construct import rows_of


class ExtractorConformance(Conformance):
    """Tests of an extractor, over one work unit of at least one row.

    Example:
        ::

            class TestTideExtractor(ExtractorConformance):
                expected = [{"at": 1, "metres": 0.5}]

                @pytest.fixture
                def open_extractor(self) -> Callable[[], Extractor]:
                    return lambda: TideExtractor(1, 2)
    """

    protocol = "gobblin_dagster.core.constructs.Extractor"
    expected: Sequence[Mapping[str, Any]]
    """The rows of the work unit, in order."""

    @pytest.fixture
    def open_extractor(self) -> Callable[[], Extractor]:
        """Return a function that opens the same work unit each time it is called."""
        to_override(self, "a fixture `open_extractor`", "a function that opens the work unit")

    def test_rows_are_read_as_expected(self, open_extractor: Callable[[], Extractor]) -> None:
        """`chunks` yields all rows of the work unit, in chunks of exactly `schema`, with row numbers in the file."""
        with closing(open_extractor()) as extractor:
            assert read_checked(extractor) == [dict(row) for row in self.expected]

    def test_work_unit_may_be_read_again(self, open_extractor: Callable[[], Extractor]) -> None:
        """A fresh extractor reads the same rows: a retry publishes what the first attempt would have."""
        found = []
        for _ in range(2):
            with closing(open_extractor()) as extractor:
                found.append(read_checked(extractor))
        assert found[0] == found[1]

    def test_extractor_may_be_closed_in_mid_reading(self, open_extractor: Callable[[], Extractor]) -> None:
        """`close` may be called before any chunk was asked for, and between chunks."""
        open_extractor().close()
        extractor = open_extractor()
        next(iter(extractor.chunks()))
        extractor.close()


def read_checked(extractor: Extractor) -> list[dict[str, Any]]:
    """Return the rows of an extractor, with what holds for every chunk checked on the way."""
    found: list[dict[str, Any]] = []
    schema, taken = extractor.schema, [extractor.bytes_read]
    for chunk in extractor.chunks():
        assert chunk.batch.schema.equals(schema), "every chunk has exactly `Extractor.schema`"
        assert chunk.rows.type == pa.int64(), "`Chunk.rows` is int64"
        assert len(chunk.rows) == chunk.batch.num_rows, "`Chunk.rows` has one number for each row"
        assert all(n is None or n >= 0 for n in chunk.rows.to_pylist()), "a row's number or offset is not negative"
        assert isinstance(chunk.file, str), "`Chunk.file` names where the rows are from, for messages"
        taken.append(extractor.bytes_read)
        found += rows_of(chunk.batch)
        if isinstance(extractor, PositionedExtractor):
            extractor.position()  # may be None; must not raise between chunks
    assert extractor.schema.equals(schema), "`schema` does not change while reading"
    assert taken == sorted(taken), "`bytes_read` never falls"
    return found
