"""Places: the form in which the state store keeps paths, so that a project folder can be moved.

A path inside the project's folder is stored relative to this folder. A path elsewhere (another disk, S3) is stored
unchanged, because it does not move with the project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_PATH = "$path"
"""Key of a JSON object `{"$path": ...}` that holds a stored path, to tell paths from other texts."""


@dataclass(frozen=True, slots=True)
class Places:
    """Turns absolute paths into stored ones and back.

    Example:
        >>> places = Places("/new/shop", former="/old/shop")
        >>> places.to_stored("/new/shop/lake/a.csv"), places.to_stored("s3://lake/a.csv")
        ('lake/a.csv', 's3://lake/a.csv')
        >>> places.from_stored("lake/a.csv"), places.from_stored("/old/shop/lake/a.csv")
        ('/new/shop/lake/a.csv', '/new/shop/lake/a.csv')
    """

    base: str = ""
    """Absolute folder of the project; empty if it is not known: then paths are not changed."""
    former: str = ""
    """The project's folder at the time when older programs stored absolute paths; empty if they never did."""

    def to_stored(self, path: str) -> str:
        """Return the stored form of an absolute path or URL."""
        inside = _inside(path, self.base)
        if inside is not None and "://" not in inside:
            return inside or "."
        # Two slashes distinguish it from an absolute path that an older program stored.
        return f"/{path}" if _inside(path, self.former) is not None else path

    def from_stored(self, stored: str) -> str:
        """Return the absolute path or URL of a stored path; a relative one is returned unchanged if `base` is empty."""
        if stored.startswith("//"):
            return stored[1:]
        if stored.startswith("/") or "://" in stored or not self.base:
            return self.from_older(stored)
        return self.base if stored == "." else f"{self.base}/{stored}"

    def from_older(self, path: str) -> str:
        """Return the present absolute path for one that an older program stored; other texts are returned unchanged."""
        inside = _inside(path, self.former)
        if inside is None:
            return path
        return f"{self.base}/{inside}" if inside else self.base

    def to_stored_json(self, value: Any) -> Any:
        """Return JSON in which each absolute path inside the project is replaced by an object `{"$path": relative}`."""
        match value:
            case str():
                stored = self.to_stored(value)
                return value if stored == value else {_PATH: stored}
            case dict():
                inner = {key: self.to_stored_json(each) for key, each in value.items()}
                return {_PATH: inner} if _PATH in inner else inner
            case list() | tuple():
                return [self.to_stored_json(each) for each in value]
        return value

    def from_stored_json(self, value: Any) -> Any:
        """Undo `to_stored_json`."""
        match value:
            case {"$path": str(stored), **rest} if not rest:
                return self.from_stored(stored)
            case {"$path": dict(inner), **rest} if not rest:
                return {key: self.from_stored_json(each) for key, each in inner.items()}
            case dict():
                return {key: self.from_stored_json(each) for key, each in value.items()}
            case list():
                return [self.from_stored_json(each) for each in value]
        return value

    def from_older_json(self, value: Any) -> Any:
        """Return JSON of an older program with its absolute paths replaced by the present ones."""
        match value:
            case str():
                return self.from_older(value)
            case dict():
                return {key: self.from_older_json(each) for key, each in value.items()}
            case list():
                return [self.from_older_json(each) for each in value]
        return value


AS_STORED = Places()
"""Changes no path; for readers that do not open files."""


def _inside(path: str, folder: str) -> str | None:
    """Return the part of a path below a folder; empty for the folder itself, None if the path is not inside of it."""
    if not folder or not path.startswith(folder):
        return None
    if len(path) == len(folder):
        return ""
    return path[len(folder) + 1 :] if path[len(folder)] == "/" else None
