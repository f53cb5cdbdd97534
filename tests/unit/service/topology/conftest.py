"""A folder of topology files that the test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]

SOUND = """\
nodes:
  landing: {type: files, properties: {path: landing}}
  lake: {type: lake, platform: s3}
  shop: {type: database}
executors:
  here: {capabilities: [{source: files, destination: lake}]}
  there: {capabilities: [{source: lake}]}
edges:
  in: {source: landing, destination: lake, template: "FS:///in.template", executors: [here]}
  out: {source: lake, destination: shop, template: "FS:///out.template", cost: 2}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return what writes files, by name, and tells their folder."""
    folder = tmp_path / "topology"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)

    def written(**files: str) -> Path:
        for name, text in files.items():
            (folder / f"{name}.yaml").write_text(text)
        return folder

    return written
