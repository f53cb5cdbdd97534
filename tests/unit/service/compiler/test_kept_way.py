"""What a flow says of its way is stored as a text: it stays equal while nothing is said otherwise."""

from __future__ import annotations

from gobblin_dagster.service.compiler.kept_way import route_of
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, EXCLUDED, INPUT, PATH, SOURCE

from ..conftest import flow

ENDS = {SOURCE: "landing", DESTINATIONS: "lake,shop"}


def test_route_tells_what_the_flow_says_and_nothing_that_it_leaves_open() -> None:
    """Stored texts: a field that later versions add must not make flows of today look as if they had changed."""
    assert route_of(flow(properties=ENDS)) == '{"source": "landing", "destinations": ["lake", "shop"]}'
    more = {EXCLUDED: "b,a", f"{INPUT}format": "csv", "table": "orders", "flow.mayChangeEdges": "true"}
    assert route_of(flow(properties=ENDS | more)) == (
        '{"source": "landing", "destinations": ["lake", "shop"], "dataset": {"format": "csv"}, "excluded": ["a", "b"]}'
    )
    assert route_of(flow(properties=ENDS | {PATH: "in"})) != route_of(flow(properties=ENDS))
