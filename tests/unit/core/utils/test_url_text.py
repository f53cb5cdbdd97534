"""URLs that lack a slash."""

from __future__ import annotations

import pytest

from gobblin_dagster.core.utils.url_text import path_problem


@pytest.mark.parametrize(
    "text", ["/lake", "lake", "C:/lake", "a/b:/c", "hdfs://nn/x", "file:///x", "s3://b", "x:y", "./~/x", "~x", "a/~"]
)
def test_whole_urls_and_paths_are_fine(text: str) -> None:
    assert path_problem(text) == ""


def test_url_with_one_slash_is_shown_as_it_should_be() -> None:
    assert path_problem("hdfs:/lake/{dataset}") == (
        "'hdfs:/lake/{dataset}' has one slash behind its scheme; write hdfs:///lake/{dataset}"
    )


def test_path_with_nul_is_told() -> None:
    assert path_problem("la\0ke/{dataset}") == "'la\\x00ke/{dataset}' has a character NUL, which no path has"


@pytest.mark.parametrize("text", ["~", "~/lake/{dataset}"])
def test_home_folder_of_shells_is_told(text: str) -> None:
    assert f"write ${{HOME}}{text[1:]}, or ./{text} if you mean it" in path_problem(text)
