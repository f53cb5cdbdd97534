"""Listeners that `gobblin.yaml` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.service.catalog.listeners import make_listeners
from gobblin_dagster.service.model import FlowId, FlowSpec
from gobblin_dagster.spec.load import load_project
from tests.services.flow_project import make_project, open_core, store_flow

HERE = __name__


class Tell:
    """Notes what it hears, by room."""

    told: list[str] = []  # noqa: RUF012 - read by the test, which does not see the listener

    def __init__(self, room: str) -> None:
        self._room = room

    def flow_changed(self, spec: FlowSpec) -> None:
        self.told.append(f"{self._room}: {spec.id} {spec.change}")


class Mute:
    """Hears nothing."""


def test_listener_of_the_settings_hears_of_changes(tmp_path: Path) -> None:
    make_project(tmp_path)
    with (tmp_path / "gobblin.yaml").open("a") as settings:
        settings.write(f"service: {{listeners: [{{type: '{HERE}:Tell', room: data}}]}}\n")
    core = open_core(tmp_path)
    core.feed.poll()
    store_flow(core, FlowId("g", "n"))
    core.feed.poll()
    core.store.close()
    assert Tell.told == ["data: g/n created"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{type: Tell}", r"service.listeners\[0\] \('Tell'\) is no class"),
        ("{type: 'no_such_module_x:Tell'}", "cannot be imported: No module named"),
        (f"{{type: '{HERE}:Nobody'}}", "cannot be imported: .*has no attribute 'Nobody'"),
        (f"{{type: '{HERE}:Tell'}}", "cannot be made: TypeError: .*'room'"),
        (f"{{type: '{HERE}:Tell', rom: x}}", "cannot be made: TypeError: .*'rom'"),
        (f"{{type: '{HERE}:Mute'}}", "has no method flow_changed"),
    ],
    ids=["no target", "no module", "no class", "argument missing", "argument unknown", "no method"],
)
def test_listener_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path, entry: str, told: str) -> None:
    (tmp_path / "gobblin.yaml").write_text(f"project: p\nservice: {{listeners: [{entry}]}}\n")
    with pytest.raises(UsageError, match=told):
        make_listeners(load_project(tmp_path).service.listeners)
