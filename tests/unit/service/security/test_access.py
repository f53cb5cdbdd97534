"""Who may do what: nobody without the token, unless the project says that everybody may."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.security.access import ANONYMOUS, OWNER, Access, Action, Principal, digest, load_token


def test_token_decides_who_asks() -> None:
    access = Access(digest("secret"))
    assert access.authenticate("Bearer secret") == OWNER
    assert access.authenticate("bearer  secret ") == OWNER
    for header in (None, "", "secret", "Basic secret", "Bearer ", "Bearer secre", "Bearer sécret"):
        assert access.authenticate(header) is None


def test_anonymous_requests_are_allowed_only_if_the_project_says_so_and_never_with_a_wrong_token() -> None:
    access = Access(digest("secret"), allows_anonymous=True)
    assert access.authenticate(None) == ANONYMOUS
    assert access.allows(ANONYMOUS, Action.DELETE, FlowId("g", "n"))
    assert access.authenticate("Bearer wrong") is None
    assert not Access(digest("secret")).allows(ANONYMOUS, Action.READ, None)


@pytest.mark.parametrize("action", Action)
def test_what_no_rule_allows_is_denied(action: Action) -> None:
    assert not Access(digest("secret")).allows(Principal("somebody"), action, None)


def test_token_is_made_once_though_many_ask_at_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "token"
    told: list[tuple[str, bool]] = []
    threads = [threading.Thread(target=lambda: told.append(load_token(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(is_new for _, is_new in told) == 1
    assert load_token(path)[0] in {token for token, _ in told}
    assert path.stat().st_mode & 0o777 == 0o600


def test_token_that_cannot_be_read_is_named_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="token"):
        load_token(tmp_path)
