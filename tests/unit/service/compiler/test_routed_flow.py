"""What a flow says of its way, and all that can be wrong with it."""

from __future__ import annotations

import pytest

from gobblin_dagster.service.compiler.routed_flow import (
    COMBINE,
    DESTINATIONS,
    EXCLUDED,
    INPUT,
    OUTPUT,
    PATH,
    SOURCE,
    SUB_PATHS,
    is_routed,
    read_routed_flow,
)
from gobblin_dagster.service.topology.model import Dataset

ENDS = {SOURCE: "landing", DESTINATIONS: "lake, shop"}


def test_flow_is_read_by_gobblins_properties() -> None:
    flow, reasons = read_routed_flow(
        {
            **ENDS,
            f"{INPUT}class": "org.apache.gobblin.service.modules.dataset.FSDatasetDescriptor",
            f"{INPUT}format": "csv",
            f"{INPUT}path": "orders",
            f"{OUTPUT}encrypt.algorithm": "gpg",
            EXCLUDED: "slow, broken",
        }
    )
    assert reasons == []
    assert (flow.source, flow.destinations, flow.excluded) == (
        "landing",
        ("lake", "shop"),
        frozenset({"slow", "broken"}),
    )
    assert flow.dataset == Dataset(format="csv", path="orders")
    assert flow.wanted == Dataset(encryption="gpg")
    assert is_routed(ENDS)
    assert not is_routed({"table": "orders"})
    assert is_routed({SOURCE: "landing"}), "no destination: refused with that reason"
    assert not is_routed({SOURCE: "landing"}, "FS:///copy.template"), "a source that only tells readers of lists"
    assert is_routed(ENDS, "FS:///copy.template")


def test_sub_paths_are_parts_of_their_own_or_one() -> None:
    flow, _ = read_routed_flow({**ENDS, f"{INPUT}path": "orders", SUB_PATHS: "eu,us"})
    assert [(name, dataset.path) for name, dataset in flow.parts] == [("eu", "orders/eu"), ("us", "orders/us")]
    flow, _ = read_routed_flow({**ENDS, SUB_PATHS: "eu,us", COMBINE: "true"})
    assert [(name, dataset.path) for name, dataset in flow.parts] == [("", "eu,us")]
    flow, _ = read_routed_flow(ENDS)
    assert flow.parts == (("", Dataset()),)


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({SOURCE: ""}, "the flow names no source; set gobblin.flow.sourceIdentifier"),
        ({DESTINATIONS: " , "}, "the flow names no destination; set gobblin.flow.destinationIdentifier"),
        ({DESTINATIONS: "a,a"}, "gobblin.flow.destinationIdentifier names 'a' twice"),
        ({SUB_PATHS: "../up"}, "gobblin.flow.dataset.subPaths: '../up' is no relative path without `..`"),
        ({SUB_PATHS: "a/%2E./up"}, "gobblin.flow.dataset.subPaths: 'a/%2E./up' is no relative path without `..`"),
        ({COMBINE: "yes"}, "gobblin.flow.dataset.combine is 'yes'; expected true or false"),
        ({PATH: "e1"}, "flow.path leads to one destination; the flow names 2"),
        ({f"{INPUT}fromat": "csv"}, "gobblin.flow.input.dataset.descriptor.fromat is not known"),
        ({SUB_PATHS: ",".join(map(str, range(101)))}, "gobblin.flow.dataset.subPaths has 101 names; at most 100"),
    ],
)
def test_fault_names_the_property(properties: dict[str, str], told: str) -> None:
    _, reasons = read_routed_flow({**ENDS, **properties})
    assert [reason for reason in reasons if reason.startswith(told)], reasons
