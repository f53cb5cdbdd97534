"""All exit codes of `gobblin`, each with its meaning; `docs/reference/exit-codes.md` has the same table."""

from __future__ import annotations

from enum import IntEnum

from gobblin_dagster.core.errors import DatasetBusyError, SpecError
from gobblin_dagster.core.run_record import RunStatus


class ExitCode(IntEnum):
    """Exit code of a command, for scripts."""

    meaning: str
    """One sentence, equal to the one in the documentation."""

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    SUCCEEDED = 0, "All is done, or there was nothing to do."
    FAILED = 1, "Nothing was published, or the command could not do what it was asked for."
    USAGE = 2, "The call, a job file or `gobblin.yaml` is wrong; nothing was read or written."
    CHANGES = 3, "A run would change something (only `gobblin plan --detailed-exitcode`)."
    PARTIAL = 4, "Some datasets or jobs are done, others are not."
    BUSY = 5, "Nothing failed, but another run holds the datasets: try again when it has ended."
    INTERRUPTED = 130, "The command was stopped by Ctrl-C or SIGTERM; what was whole is published."

    @classmethod
    def of_run(cls, status: RunStatus) -> ExitCode:
        """Return the exit code of a run."""
        return cls[status.name]

    @classmethod
    def of_error(cls, error: BaseException) -> ExitCode:
        """Return the exit code of a command that ended with an error."""
        if isinstance(error, SpecError):
            return cls.USAGE
        return cls.BUSY if isinstance(error, DatasetBusyError) else cls.FAILED
