from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from gobblin_dagster.core.utils.import_target import load_target


def test_target_is_what_a_module_holds_under_a_name() -> None:
    assert load_target("pathlib:PurePosixPath.as_posix") is PurePosixPath.as_posix


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("nowhere:Class", "No module named 'nowhere'"),
        ("os:Nothing", "has no attribute 'Nothing'"),
        ("pathlib:Path.nothing", "has no attribute 'nothing'"),
        ("tempfile:_os.system", "leads through the module 'os'"),
        ("tempfile:_os.path.join", "leads through the module 'os'"),
        ("tempfile:__loader__.get_data", "two underscores"),
        ("os", "has no attribute ''"),
        (":Class", "Empty module name"),
    ],
)
def test_target_that_is_none_is_an_import_error_that_says_why(target: str, problem: str) -> None:
    with pytest.raises(ImportError, match=problem):
        load_target(target)
