"""Tests that every source must pass: pure planning, ordered work units, and rows that can be read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter

from gobblin_dagster.constructs.registry import ConstructKind
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.constructs import (
    ConstructContext,
    DatasetOffer,
    PositionedExtractor,
    PositionedSource,
    PreviewsSchema,
    Source,
    SourceContext,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.testing.conformance.construct import ConstructConformance
from gobblin_dagster.testing.conformance.extractor import read_checked

_UNITS = TypeAdapter(WorkUnit)


class PlanConformance(ConstructConformance):
    """Tests of what a source plans; enough for one that Spark reads (`FrameSource`)."""

    protocol = "gobblin_dagster.core.constructs.Source"
    kind = ConstructKind.SOURCE
    expected: Mapping[str, Sequence[Mapping[str, Any]]]
    """The rows that there are, by dataset.urn, in the order of their work units."""
    extract: Extract = Extract("conformance", "rows")
    """The extract of the job."""
    is_incremental: bool = True
    """True if committed data is not offered again; False if every run reads everything."""

    @pytest.fixture
    def source(self, context: ConstructContext) -> Source:
        """Return the source; the data that it reads must be there. Override `context` to put them there."""
        made: Source = self.make(context)
        return made

    def planned(
        self,
        source: Source,
        states: Mapping[str, DatasetState] | None = None,
        is_selected: Callable[[str], bool] = lambda urn: True,
    ) -> dict[str, DatasetOffer]:
        """Plan, and return the offers by dataset.urn."""
        offers = list(source.plan(SourceContext(self.extract, states or {}, is_selected, SystemClock())))
        assert len({offer.dataset_urn for offer in offers}) == len(offers), "a dataset is offered once"
        return {offer.dataset_urn: offer for offer in offers}

    def committed(self, offers: Mapping[str, DatasetOffer]) -> dict[str, DatasetState]:
        """Return the states of datasets after everything that was offered is committed."""
        return {urn: _state(offer) for urn, offer in offers.items() if offer.work_units}

    def test_each_dataset_is_offered(self, source: Source) -> None:
        """`plan` offers every dataset that there is, without a problem, and work units where rows are to be read."""
        offers = self.planned(source)
        assert {urn: offer.problem for urn, offer in offers.items()} == dict.fromkeys(self.expected, "")
        assert {urn for urn, offer in offers.items() if offer.work_units} == {
            u for u, rows in self.expected.items() if rows
        }

    def test_planning_is_pure(self, source: Source, context: ConstructContext) -> None:
        """`plan` changes nothing: it may be called again, also of a fresh source, and offers the same."""
        offers = self.planned(source)
        assert self.planned(source) == offers
        assert self.planned(self.make(context)) == offers

    def test_only_selected_datasets_are_offered(self, source: Source) -> None:
        """`plan` offers no dataset that `SourceContext.is_selected` refuses."""
        assert self.planned(source, is_selected=lambda urn: False) == {}
        for urn in self.expected:
            assert set(self.planned(source, is_selected=urn.__eq__)) == {urn}

    def test_work_units_belong_to_their_offer(self, source: Source) -> None:
        """Work units name their offer's dataset and have their own ids; `low` is not above `expected_high`."""
        for offer in self.planned(source).values():
            assert {unit.dataset_urn for unit in offer.work_units} <= {offer.dataset_urn}
            assert len({unit.id for unit in offer.work_units}) == len(offer.work_units)
            assert [unit for unit in offer.work_units if not unit.low <= unit.expected_high] == []
            marks = [mark for unit in offer.work_units for mark in (unit.low, unit.expected_high)]
            assert len({type(mark) for mark in marks}) <= 1

    def test_work_units_share_no_position(self, source: Source) -> None:
        """Ranges of work units do not overlap, so that no row is read twice."""
        for offer in self.planned(source).values():
            if offer.work_units:
                _state(offer)  # adds range to range, and raises where they overlap

    def test_work_units_travel(self, source: Source) -> None:
        """A work unit is small JSON: it comes back equal, and holds nothing of the process that planned it."""
        for offer in self.planned(source).values():
            for unit in offer.work_units:
                assert _sent(unit) == unit

    def test_what_was_committed_is_not_offered_again(self, source: Source) -> None:
        """`plan` also offers a dataset without new data, with no work unit that reads anything."""
        offers = self.planned(source)
        again = self.planned(source, self.committed(offers))
        assert set(again) == set(offers), "a dataset with nothing new is offered too"
        if self.is_incremental:
            assert [unit for offer in again.values() for unit in offer.work_units if not unit.is_empty] == []


class SourceConformance(PlanConformance):
    """Tests of a source and of its extractors.

    Example:
        ::

            class TestTides(SourceConformance):
                spec = {"type": "tides:TideSource", "ports": ["a"]}
                expected = {"a": [{"at": 1, "metres": 0.5}]}
    """

    def units(self, source: Source) -> list[WorkUnit]:
        """Return all work units that are to be read."""
        return [unit for offer in self.planned(source).values() for unit in offer.work_units if not unit.is_empty]

    def test_rows_are_read_as_expected(self, source: Source) -> None:
        """The work units of a dataset hold all of its rows, once; every chunk is as `Extractor` says."""
        found: dict[str, list[dict[str, Any]]] = {urn: [] for urn in self.expected}
        for unit in self.units(source):
            with closing(source.extractor(unit)) as extractor:
                found[unit.dataset_urn] += read_checked(extractor)
        assert found == {urn: [dict(row) for row in rows] for urn, rows in self.expected.items()}

    def test_work_unit_may_be_read_again_elsewhere(self, source: Source, context: ConstructContext) -> None:
        """A fresh source reads a work unit that came as JSON: planning and reading happen in different processes."""
        for unit in self.units(source):
            elsewhere: Source = self.make(replace(context, dataset_urn=unit.dataset_urn))
            with closing(source.extractor(unit)) as here, closing(elsewhere.extractor(_sent(unit))) as there:
                assert read_checked(here) == read_checked(there)

    def test_extractor_may_be_closed_in_mid_reading(self, source: Source) -> None:
        """`Extractor.close` may be called before any chunk was asked for, and between chunks."""
        for unit in self.units(source):
            source.extractor(unit).close()
            extractor = source.extractor(unit)
            next(iter(extractor.chunks()))
            extractor.close()

    def test_positions_lie_inside_the_work_unit(self, source: Source) -> None:
        """`position` is None or between `low` and `expected_high`, never falls, and is the end after all is read."""
        for unit in self.units(source):
            with closing(source.extractor(unit)) as extractor:
                if not (isinstance(source, PositionedSource) and source.tells_positions()):
                    continue
                assert isinstance(extractor, PositionedExtractor), "`tells_positions` promises it"
                reached = unit.low
                for _ in extractor.chunks():
                    position = extractor.position()
                    if position is not None:
                        assert reached <= position, "a position never falls"
                        assert position <= unit.expected_high
                        reached = position

    def test_schema_that_was_foreseen_is_that_of_the_rows(self, source: Source) -> None:
        """`preview_schema` returns None, or the schema that the extractor has."""
        for unit in self.units(source):
            foreseen = source.preview_schema(unit) if isinstance(source, PreviewsSchema) else None
            if foreseen is not None:
                with closing(source.extractor(unit)) as extractor:
                    assert extractor.schema.equals(foreseen)

    def test_committed_rows_are_counted(self, source: Source) -> None:
        """`count_rows` counts the rows of committed ranges, or returns None; the audit relies on it."""
        for urn, state in self.committed(self.planned(source)).items():
            assert source.count_rows(urn, state.committed) in {None, len(self.expected[urn])}


def _state(offer: DatasetOffer) -> DatasetState:
    """Return the state of a dataset after everything that was offered is committed; raises RangeOverlapError."""
    done = CommittedRanges(type(offer.work_units[0].low), {}).anchored(offer.work_units[0].low)
    done = done.add_all([unit.interval for unit in offer.work_units], offer.dataset_urn)
    now = datetime.now(UTC)
    return DatasetState("conformance", offer.dataset_urn, 1, done, 1, "run-1", now, origin=dict(offer.origin))


def _sent(unit: WorkUnit) -> WorkUnit:
    """Return a work unit as it arrives in a Spark task."""
    return _UNITS.validate_json(_UNITS.dump_json(unit))
