"""How much the references of a HOCON text bring."""

from __future__ import annotations

import pytest

from gobblin_dagster.spec.gobblin import entries
from gobblin_dagster.spec.gobblin.hocon import HoconError, read_hocon

_MOST = entries.MAX_BROUGHT


def _read(text: str) -> list[str]:
    return [value for _, value, _ in read_hocon(text, lambda _: False, lambda _: False)]


def _keys(line: str, last: str = "k60=x") -> str:
    lines = (line.replace("HERE", f"k{number}").replace("NEXT", f"k{number + 1}") for number in range(60))
    return "\n".join([*lines, last])


@pytest.mark.parametrize(
    "text",
    [
        _keys("HERE=${NEXT}${NEXT}"), _keys("HERE=${?NEXT}${?NEXT}", ""), _keys("HERE=[${NEXT}, [${NEXT}]]"),
        _keys("HERE={a: ${NEXT}, b: {c: ${NEXT}}}"), _keys("HERE {a: ${NEXT}\nb: ${NEXT}}"),
        "k=x" + "\nk=${k}${k}" * 60,
        _keys('"HERE"=${"NEXT"}${ "NEXT" }'), _keys('HERE."a}b" : ${NEXT."a}b"}${NEXT."a}b"}', 'k60."a}b"=x'),
        _keys("HERE.a=1,HERE.b=${NEXT}\nHERE.c=${NEXT}", "k60 {}"),
        _keys("HERE=${NEXT}{a: 1}${NEXT.b}").replace("k60=x", "k60={b: {}}"),
        _keys("HERE=${NEXT}${NEXT}").replace("${k", r'${"\u006b').replace("}", '"}'),
        "{" + _keys("HERE= # }\n${NEXT}${NEXT} # {") + "}",
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_references_that_bring_more_than_any_job_needs_are_refused(text: str) -> None:
    with pytest.raises(HoconError, match=f"bring more than {_MOST:,} characters"):
        _read(text)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"k{number}=${{root}}/${{zone}}/{number}" for number in range(500)) + "\nroot=/data\nzone=eu",
        "path=a" + '\npath=${path}":b"' * 60,
        "base {" + ", ".join(f"k{number}=x" for number in range(30)) + "}\n"
        + "\n".join(f"j{number}=${{base}}{{a: 1}}" for number in range(50)),
        "zone=a\n" * 500 + "k=${zone}\n" * 500,
        "a=[1]\n" + "a=${a} [2]\n" * 60,
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_references_of_jobs_are_replaced(text: str) -> None:
    assert _read(text)
