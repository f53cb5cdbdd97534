from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import (
    EnvironmentFaultError,
    GobblinDagsterError,
    StorageError,
    TransientError,
    UsageError,
)
from gobblin_dagster.state import open_store

SECRET = "s3cr3t-word"


def everything_shown(error: BaseException) -> str:
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


def test_a_relative_file_starts_from_the_base_folder_whose_folders_are_made(tmp_path: Path) -> None:
    store = open_store("sqlite:///deep/er/state.db", tmp_path)

    assert (tmp_path / "deep/er/state.db").is_file()
    assert store.url == f"sqlite:///{tmp_path}/deep/er/state.db"
    assert repr(store) == f"SqlStateStore('{store.url}')"
    store.close()


def test_an_absolute_file_stays_where_it_is(tmp_path: Path) -> None:
    open_store(f"sqlite:////{tmp_path}/state.db", Path("/nowhere")).close()

    assert (tmp_path / "state.db").is_file()


def test_a_file_name_may_hold_anything(tmp_path: Path) -> None:
    name = "größe 50% #1.db"

    open_store(f"sqlite:///{name}", tmp_path).close()

    assert (tmp_path / name).is_file()


def test_a_folder_name_may_hold_a_question_mark(tmp_path: Path) -> None:
    (tmp_path / "what?").mkdir()

    open_store("sqlite:///state.db", tmp_path / "what?").close()

    assert (tmp_path / "what?/state.db").is_file()


def test_plain_files_are_opened_relative_to_the_base_folder(tmp_path: Path) -> None:
    open_store("files:progress", tmp_path).close()

    assert (tmp_path / "progress").is_dir()


@pytest.mark.parametrize(
    ("url", "named"),
    [
        pytest.param("mysql://host/db", "'mysql'", id="another database"),
        pytest.param("state.db", "has no scheme", id="no scheme"),
        pytest.param("", "has no scheme", id="nothing"),
        pytest.param("postgresql+asyncpg://host/db", "'postgresql\\+asyncpg'", id="another driver"),
        pytest.param("sqlite:", "cannot be read", id="sqlite without slashes"),
        pytest.param("sqlite:///", "names no file", id="sqlite without a file"),
        pytest.param("sqlite:///~/state.db", r"write \$\{HOME\}/state.db", id="sqlite in a shell's home"),
        pytest.param("files:~/state", r"write \$\{HOME\}/state", id="files in a shell's home"),
        pytest.param("sqlite:///:memory:", "names no file", id="sqlite in memory"),
        pytest.param("postgresql://host:port/db", "cannot be read", id="no number as port"),
    ],
)
def test_a_url_that_cannot_work_is_refused(tmp_path: Path, url: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        open_store(url, tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"postgresql://me:{SECRET}@127.0.0.1:1/db", id="refused connection"),
        pytest.param(f"postgresql://me@127.0.0.1:1/db?password={SECRET}", id="password as an option"),
        pytest.param(f"postgresql://me:{SECRET}@127.0.0.1:port/db", id="unreadable"),
        pytest.param(f"oracle://me:{SECRET}@127.0.0.1/db", id="another database"),
    ],
)
def test_errors_never_show_the_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(GobblinDagsterError) as caught:
        open_store(url, tmp_path)

    assert SECRET not in everything_shown(caught.value)


def test_a_server_that_does_not_answer_is_worth_a_retry(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"postgresql\+psycopg2://me:\*\*\*@127.0.0.1:1/db.*refused"):
        open_store("postgres://me:word@127.0.0.1:1/db", tmp_path)


def test_a_missing_driver_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)

    with pytest.raises(EnvironmentFaultError, match=r"needs the Python package psycopg2.*gobblin-dagster\[postgres\]"):
        open_store(f"postgresql://me:{SECRET}@host/db", tmp_path)


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("carrier,tailnum\n" * 100)

    with pytest.raises(StorageError, match=r"state\.db: file is not a database"):
        open_store("sqlite:///state.db", tmp_path)

    assert (tmp_path / "state.db").read_text() == "carrier,tailnum\n" * 100


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")

    with pytest.raises(StorageError, match=f"make the folder {tmp_path}/taken"):
        open_store("sqlite:///taken/state.db", tmp_path)


@pytest.mark.parametrize(
    ("url", "unwanted"),
    [
        pytest.param("sqlite:///state.db", "alembic", id="an existing SQLite store needs no Alembic"),
        pytest.param("files:progress", "sqlalchemy", id="plain files need no SQLAlchemy"),
    ],
)
def test_opening_an_existing_store_imports_only_what_it_needs(tmp_path: Path, url: str, unwanted: str) -> None:
    open_store(url, tmp_path).close()
    program = (
        "import sys; from pathlib import Path; from gobblin_dagster.state import open_store\n"
        f"open_store({url!r}, Path({str(tmp_path)!r})).list_jobs(); sys.exit({unwanted!r} in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
