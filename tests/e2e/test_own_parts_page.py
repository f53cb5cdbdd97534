"""The page on testing a part of one's own, run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from gobblin_dagster.testing import conformance

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-your-own.md"
TEXT = PAGE.read_text(encoding="utf-8")
PARTS, TESTS, CARELESS, ORDERS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def run(folder: Path, test: str) -> str:
    (folder / "conftest.py").touch()
    (folder / "shop_parts.py").write_text(PARTS, encoding="utf-8")
    (folder / "test_it.py").write_text(test, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), "-rf", "test_it.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_parts_that_pass_are_as_many_tests_as_the_page_says(tmp_path: Path) -> None:
    (count,) = re.findall(r"passes (\d+) tests", TEXT)
    assert f"= {count} passed in" in run(tmp_path, TESTS)


def test_broken_storage_fails_with_the_text_of_the_page(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    printed = run(tmp_path, CARELESS)
    missing = [line for line in shown.replace("test_careless.py", "test_it.py").splitlines() if line not in printed]
    assert missing == [], printed
    assert re.search(r"= 2 failed, \d+ passed in", printed)


def test_source_with_data_that_a_fixture_makes_passes(tmp_path: Path) -> None:
    assert re.search(r"= \d+ passed in", run(tmp_path, ORDERS))


def test_page_names_every_class() -> None:
    assert [name for name in conformance.__all__ if name.endswith("Conformance") and f"`{name}`" not in TEXT] == []
