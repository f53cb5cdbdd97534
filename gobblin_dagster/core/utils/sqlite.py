"""What errors of SQLite mean."""


def is_locked(error: BaseException | None) -> bool:
    """Return whether another session holds a database of SQLite, so that the same statement may succeed later.

    Args:
        error: of the driver; one that Python raises by itself has no `sqlite_errorname`, and one of another database
            neither.
    """
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
