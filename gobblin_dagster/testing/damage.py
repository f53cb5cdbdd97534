"""Damage published files and manifests: delete, cut or edit them, or add foreign ones.

Each kind names the difference that `engine.maintenance.verify` must find. A manifest in the middle of the chain is
damaged, so that a reader of the newest snapshot reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gobblin_dagster.engine.commit.manifest import list_manifests, manifest_path, read_manifest
from gobblin_dagster.engine.maintenance.verify import Differs
from gobblin_dagster.storage import LocalStorage


@dataclass(frozen=True, slots=True)
class Damage:
    """One kind of damage to a dataset on a local disk."""

    name: str
    differs: Differs
    harm: Callable[[Path], object]
    """Damages the published file or manifest at a path."""
    is_of_manifest: bool = False
    needs_checksum: bool = False
    """True if the size stays the same, so only a checksum finds it."""

    @property
    def is_mendable(self) -> bool:
        """True if the state store can restore it."""
        return self.is_of_manifest and self.differs is not Differs.MANIFEST_UNKNOWN

    def strike(self, output_root: str, job: str, dataset_urn: str) -> None:
        """Damage a file of the dataset's newest snapshot, or a manifest of its middle."""
        storage = LocalStorage()
        numbers = list_manifests(storage, output_root, job, dataset_urn)
        middle = numbers[len(numbers) // 2]
        if self.is_of_manifest:
            self.harm(Path(manifest_path(output_root, job, dataset_urn, middle)))
        else:
            self.harm(Path(read_manifest(storage, output_root, job, dataset_urn)[0].path))


def _change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _edit(path: Path) -> None:
    body = json.loads(path.read_text())
    first = next(iter(body["branches"].values()))[0]
    first["rows"] += 1
    path.write_text(json.dumps(body))


def _lose_files(path: Path) -> None:
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"branches": {}}))


def _from_the_future(path: Path) -> None:
    number = int(path.stem) + 1_000
    body = json.loads(path.read_text()) | {"snapshot": number}
    path.with_name(f"{number:010d}.json").write_text(json.dumps(body))


def _copy_beside(path: Path) -> None:
    path.with_name(f"copy-of-{path.name}").write_bytes(path.read_bytes())


DAMAGES = (
    Damage("file deleted", Differs.FILE_MISSING, Path.unlink),
    Damage("file cut", Differs.FILE_ALTERED, _cut),
    Damage("byte of a file changed", Differs.FILE_ALTERED, _change_a_byte, needs_checksum=True),
    Damage("file copied beside", Differs.FILE_EXTRA, _copy_beside),
    Damage("manifest deleted", Differs.MANIFEST_MISSING, Path.unlink, is_of_manifest=True),
    Damage("manifest cut", Differs.MANIFEST_CUT, _cut, is_of_manifest=True),
    Damage("manifest emptied", Differs.MANIFEST_CUT, lambda path: path.write_bytes(b""), is_of_manifest=True),
    Damage("manifest edited", Differs.MANIFEST_EDITED, _edit, is_of_manifest=True),
    Damage("manifest without its files", Differs.MANIFEST_EDITED, _lose_files, is_of_manifest=True),
    Damage("manifest of nobody", Differs.MANIFEST_UNKNOWN, _from_the_future, is_of_manifest=True),
)
