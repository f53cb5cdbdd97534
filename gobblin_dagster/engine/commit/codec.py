"""Stored form of a commit sequence: key facts in columns, the rest in one JSON body with a digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from gobblin_dagster.core.commit import (
    CommitGroup,
    CommitReport,
    CommitSequence,
    CommitStep,
    PublishedFile,
    SequenceState,
    StoredSequence,
    body_digest,
    canonical_json,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, UsageError, WatermarkTypeError
from gobblin_dagster.core.places import Places
from gobblin_dagster.core.serialization import from_document, to_document
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.engine.commit.steps import is_known_step, renames_of, step_from_json, step_to_json

FORMAT = "CommitSequence/3"
_ABSOLUTE = ("CommitSequence/2", "CommitSequence/1")
"""Formats of older versions, with absolute paths. Format 1 repeats every file that the renames already list."""
_WITH_PATHS = ("steps", "files", "output_root", "staging_dirs", "removed")
_OLD_REPORT = "DatasetResult/1"
"""Format of the reports of older versions: it repeats facts of the sequence, and has another form of the startpoint."""


def encode_sequence(sequence: CommitSequence, places: Places) -> StoredSequence:
    """Return the sequence in its stored form: PREPARED, with its digest.

    Args:
        sequence: with absolute paths.
        places: of the store that gets it (`StateStore.places`).

    Raises:
        UsageError: it has no `created_at`.
    """
    if sequence.created_at is None:
        raise UsageError(problem=f"Commit sequence {sequence.id} has no creation time.", hint="Set `created_at`.")
    paths = {
        "steps": [step_to_json(step) for step in sequence.steps],
        **_files_to_json(sequence),
        "output_root": sequence.output_root,
        "staging_dirs": sequence.staging_dirs,
        **({"removed": sequence.removed} if sequence.removed else {}),
    }
    body = canonical_json(
        {
            "format": FORMAT,
            "identity": _identity(sequence),
            **places.to_stored_json(paths),
            "after": to_document(sequence.after),
            "report": to_document(sequence.report),
            **_startpoints_to_json(sequence.startpoints),
            **({"group": asdict(sequence.group)} if sequence.group else {}),
            **({"is_staged_beside": True} if sequence.is_staged_beside else {}),
        }
    )
    return StoredSequence(
        id=sequence.id,
        job=sequence.job,
        dataset_urn=sequence.dataset_urn,
        run_id=sequence.run_id,
        version_read=sequence.version_read,
        state=SequenceState.PREPARED,
        body=body,
        digest=body_digest(body),
        created_at=sequence.created_at,
    )


def decode_sequence(stored: StoredSequence, places: Places, *, skip_unknown_steps: bool = False) -> CommitSequence:
    """Read a stored sequence; raises an error if any part of it is damaged.

    Args:
        stored: the sequence.
        places: of the store that holds it; `AS_STORED` leaves paths as they are stored.
        skip_unknown_steps: leave out steps of unregistered types, for readers that run no steps. Custom steps are
            registered only while their job is loaded.

    Raises:
        CorruptRecordError: the body does not match its digest or its columns, or its format is unknown; or, caused by a
            WatermarkTypeError, the class of its watermarks cannot be imported.
    """
    what = f"Commit sequence {stored.id} of dataset {stored.dataset_urn!r}"
    if body_digest(stored.body) != stored.digest:
        raise CorruptRecordError(what=what, problem="its body does not match its digest")
    try:
        return _decode(stored, _with_paths(parse_json(stored.body), places), skip_unknown_steps=skip_unknown_steps)
    except CorruptRecordError as error:
        raise CorruptRecordError(what=what, problem=error.problem) from error
    except WatermarkTypeError as error:
        raise CorruptRecordError(what=what, problem=str(error).rstrip(".")) from error
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError(what=what, problem=repr(error)) from error


def has_stored_paths(stored: StoredSequence) -> bool:
    """Return whether its paths begin at the project; False if they are absolute, as older programs stored them."""
    try:
        return bool(parse_json(stored.body)["format"] == FORMAT)
    except (ValueError, KeyError, TypeError):
        return False  # damaged


def _with_paths(body: dict[str, Any], places: Places) -> dict[str, Any]:
    """Return a stored body with absolute paths."""
    if body.get("format") not in (FORMAT, *_ABSOLUTE):
        raise CorruptRecordError(what="", problem=f"expected format {FORMAT!r}, got {body.get('format')!r}")
    absolute = places.from_stored_json if body["format"] == FORMAT else places.from_older_json
    return body | {name: absolute(body[name]) for name in _WITH_PATHS if name in body}


def _decode(stored: StoredSequence, body: dict[str, Any], *, skip_unknown_steps: bool) -> CommitSequence:
    steps = tuple(step_from_json(raw) for raw in body["steps"] if not skip_unknown_steps or is_known_step(raw))
    after = from_document(DatasetState, body["after"])
    sequence = CommitSequence(
        **body["identity"],
        steps=steps,
        files=_files_from_json(body, steps, after.snapshot),
        after=after,
        output_root=body["output_root"],
        staging_dirs=tuple(body["staging_dirs"]),
        created_at=_instant(stored.created_at),
        report=_load_report(body["report"]),
        removed=tuple(body.get("removed", ())),
        startpoints=tuple(body["startpoints"] if "startpoints" in body else filter(None, [body.get("startpoint")])),
        group=CommitGroup(**body["group"]) if "group" in body else None,
        is_staged_beside=body.get("is_staged_beside", False),
    )
    if _identity(sequence) != _identity(stored):
        raise CorruptRecordError(what="", problem="its body belongs to another sequence")
    return sequence


def _startpoints_to_json(ids: Sequence[str]) -> dict[str, Any]:
    # A single one is stored as by older versions, which can then still finish the sequence.
    if len(ids) == 1:
        return {"startpoint": ids[0]}
    return {"startpoints": list(ids)} if ids else {}


def _load_report(raw: dict[str, Any]) -> CommitReport:
    # Reports of sequences from a step store had no format.
    return from_document(CommitReport, {"format": _OLD_REPORT, **raw}, older_formats=(_OLD_REPORT,))


def _identity(value: CommitSequence | StoredSequence) -> dict[str, Any]:
    """Return the fields that identify a sequence; the body repeats them, so a body in a wrong row is found."""
    return {
        "id": value.id,
        "job": value.job,
        "dataset_urn": value.dataset_urn,
        "run_id": value.run_id,
        "version_read": value.version_read,
    }


def _files_to_json(sequence: CommitSequence) -> dict[str, Any]:
    """Return the published files; if the renames are just these files in this order, only the other facts."""
    files, snapshot = sequence.files, sequence.after.snapshot
    moved = [(rename.target, rename.size_bytes, rename.sha256) for rename in renames_of(sequence.steps)]
    if moved != [(file.path, file.size_bytes, file.sha256) for file in files] or any(
        file.snapshot != snapshot for file in files
    ):
        return {"files": [asdict(file) for file in files]}
    numbers = {name: number for number, name in enumerate(dict.fromkeys(file.branch for file in files))}
    return {"moved": {"branches": list(numbers), "rows": [(numbers[file.branch], file.rows) for file in files]}}


def _files_from_json(body: dict[str, Any], steps: Sequence[CommitStep], snapshot: int) -> tuple[PublishedFile, ...]:
    if "files" in body:
        return tuple(PublishedFile(**raw) for raw in body["files"])
    branches, rows = body["moved"]["branches"], body["moved"]["rows"]
    return tuple(
        PublishedFile(branches[number], rename.target, rename.size_bytes, rename.sha256, count, snapshot)
        for rename, (number, count) in zip(renames_of(steps), rows, strict=True)
    )


def _instant(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f"creation time {value.isoformat()} has no time zone")
    return value
