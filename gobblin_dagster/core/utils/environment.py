"""Variables of the environment that belong to one call, and those that last from one call to the next."""

from __future__ import annotations

from collections.abc import Mapping

PASSING = frozenset(
    {
        *("_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"),
        *("TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "WINDOWID", "TMUX", "TMUX_PANE", "STY"),
        *("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_SESSION_ID", "INVOCATION_ID", "JOURNAL_STREAM"),
        *("GOBBLIN_DEBUG", "GOBBLIN_PROJECT", "PYTEST_CURRENT_TEST"),
    }
)
"""Variables that belong to one call, such as those of its terminal; they change nothing of what a run does."""


def lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the other variables: a process that stays for further calls must have been started with the same."""
    return {name: value for name, value in environment.items() if name not in PASSING}
