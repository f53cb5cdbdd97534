from __future__ import annotations

from gobblin_dagster.core.utils.duplicates import alike, repeated


def test_repeated_names_are_told_once_and_sorted() -> None:
    assert repeated(["b", "a", "c", "a", "b", "b"]) == ["a", "b"]
    assert repeated([]) == []


def test_alike_names_are_the_first_two_that_differ_and_compare_equal() -> None:
    assert alike(["a", "b", "B", "A"], str.lower) == ("b", "B")
    assert alike(["a", "b", "a"], str.lower) is None
