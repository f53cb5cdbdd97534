from __future__ import annotations

import os

import pytest

from gobblin_dagster.spec.project import SparkSpec


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[2,4]", 2),
        ("local[2, 4]", 2),
        ("local[*]", os.cpu_count()),
        ("yarn", None),
    ],
)
def test_cores_are_known_of_local_masters_only(master: str, cores: int | None) -> None:
    assert SparkSpec(master=master).local_cores == cores


def test_cores_of_a_server_are_not_known() -> None:
    assert SparkSpec(remote="sc://127.0.0.1:15002").local_cores is None
