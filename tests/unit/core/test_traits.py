"""What constructs say of themselves in attributes, all of them optional."""

from __future__ import annotations

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.traits import PublisherTraits, SourceTraits, WriterTraits, traits_of


class Plain:
    """Says nothing."""


class Replacing:
    """Says it by its class, by its object and by a property."""

    reads_current = True

    def __init__(self) -> None:
        self.needs_all_units = True

    @property
    def published_elsewhere(self) -> str:
        return "a table"


class Shows:
    stages_files = False


class Whole:
    full_extract = "startover"


class Forgetful:
    def reads_current(self) -> bool:
        return False


def test_construct_that_says_nothing_has_the_defaults() -> None:
    assert traits_of(Plain(), PublisherTraits) == PublisherTraits()


def test_traits_are_read_of_class_object_and_property() -> None:
    assert traits_of(Replacing(), PublisherTraits) == PublisherTraits(
        reads_current=True, needs_all_units=True, published_elsewhere="a table"
    )
    assert traits_of(Shows, WriterTraits) == WriterTraits(stages_files=False)


def test_method_where_a_property_was_meant_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"Forgetful.reads_current is <bound method .*>, expected bool\. .* default is False"
    ):
        traits_of(Forgetful(), PublisherTraits)
    with pytest.raises(UsageError, match=r"Replacing.published_elsewhere is <property .*>, expected str"):
        traits_of(Replacing, PublisherTraits)


def test_unknown_way_of_a_full_extract_is_refused() -> None:
    with pytest.raises(UsageError, match="`full_extract` of a source is 'startover'"):
        traits_of(Whole(), SourceTraits)
