from __future__ import annotations

import pytest

from gobblin_dagster.core.places import AS_STORED, Places

PLACES = Places("/new/shop", former="/old/shop")


@pytest.mark.parametrize(
    ("path", "stored"),
    [
        ("/new/shop/lake/a b.csv", "lake/a b.csv"),
        ("/new/shop", "."),
        ("/new/shopping/a", "/new/shopping/a"),
        ("/mnt/lake/a", "/mnt/lake/a"),
        ("s3://lake/new/shop/a", "s3://lake/new/shop/a"),
        # Left where the project was once: an older program would have meant another file by this path.
        ("/old/shop/lake/a", "//old/shop/lake/a"),
    ],
)
def test_path_that_is_stored_comes_back(path: str, stored: str) -> None:
    assert PLACES.to_stored(path) == stored
    assert PLACES.from_stored(stored) == path


def test_stored_path_follows_the_project() -> None:
    assert Places("/newer").from_stored(PLACES.to_stored("/new/shop/lake/a")) == "/newer/lake/a"


def test_absolute_path_of_an_older_program_follows_the_project() -> None:
    assert PLACES.from_stored("/old/shop/lake/a") == "/new/shop/lake/a"
    assert PLACES.from_older_json({"root": "/old/shop", "n": 1, "of": ["/old/shop/a", "old/shop/a"]}) == {
        "root": "/new/shop",
        "n": 1,
        "of": ["/new/shop/a", "old/shop/a"],
    }


@pytest.mark.parametrize(
    "value",
    [
        {"source": "/new/shop/a", "files": [["b", 3, "/new/shop"]], "text": "lake/a", "none": None, "is": True},
        {"$path": "lake/a"},
        {"$path": {"$path": "/new/shop/a"}, "other": "."},
        "/new/shop/a",
    ],
)
def test_json_of_any_step_comes_back(value: object) -> None:
    assert PLACES.from_stored_json(PLACES.to_stored_json(value)) == value
    assert AS_STORED.from_stored_json(AS_STORED.to_stored_json(value)) == value


def test_json_tells_paths_from_other_texts() -> None:
    assert PLACES.to_stored_json(["/new/shop/a", "a"]) == [{"$path": "a"}, "a"]
