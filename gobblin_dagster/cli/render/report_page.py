"""Write the report of a run as one HTML page: tables and plots (SVG) inside of it, no script, nothing to load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.run_record import DatasetOutcome, RunRecord
from gobblin_dagster.engine.snapshots.rejected_rows import QuarantineCount

MOST_ROWS = 1000
"""Most rows of a table; the others are counted below it."""
_PLOT_WIDTH, _PLOT_HEIGHT = 720, 140
_STYLE = """
:root { color-scheme: light dark; --bad: #b00020; --good: #1b6e3c; --so: #8a5a00; --dim: #6b6b6b; --bar: #4878a8; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222;
  background: #fff; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
td { min-width: 4rem; } td.text { min-width: 9rem; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.failed, .quarantined, .interrupted { color: var(--bad); } .committed, .succeeded { color: var(--good); }
.partial, .busy, .cancelled { color: var(--so); } .dim { color: var(--dim); }
svg { background: #fafafa; border: 1px solid #eee; max-width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: #555; } svg rect { fill: var(--bar); } svg .bad { fill: var(--bad); }
@media (prefers-color-scheme: dark) {
  :root { --bad: #ff7a85; --good: #66c890; --so: #e0ad55; --dim: #9a9a9a; --bar: #6fa3d8; }
  body { background: #181818; color: #ddd; } th, td { border-color: #333; }
  svg { background: #202020; border-color: #333; } svg text { fill: #aaa; } }
"""
_LONG = 30
"""Characters of a text from which its column is given more room."""


def report_page(
    run: RunRecord,
    history: Sequence[RunRecord],
    states: Mapping[str, DatasetState],
    rejected: Sequence[QuarantineCount] | None,
    now: datetime,
) -> str:
    """Return the page.

    Args:
        run: the run to report.
        history: runs of its job, newest first.
        states: the job's datasets, by urn, as they are now.
        rejected: rejected rows of the job; None if they cannot be counted now.
        now: for lags, aware.
    """
    parts = [
        _head(run),
        _section("Datasets of this run", _table(_RUN_COLUMNS, _run_rows(run)), "No dataset had work."),
        _section("Errors", _table(("dataset", "error"), _errors(run)), "None."),
        _section("Rows read, by run", _bars([(one, _rows(one)) for one in reversed(history)], run, "rows"), ""),
        _section("Seconds, by run", _bars([(one, _seconds(one)) for one in reversed(history)], run, "s"), ""),
        _section(
            "Lag: time since the last commit", _table(_LAG_COLUMNS, _lag_rows(states, now)), "Nothing is published."
        ),
        _section(
            "Rejected rows that wait in the quarantine",
            _table(("dataset", "policy", "rows"), ((one.dataset_urn, one.policy, one.rows) for one in rejected or ())),
            "None." if rejected is not None else "They cannot be counted now.",
        ),
    ]
    title = escape(f"Run {run.run_id} of {run.job}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{''.join(parts)}</body></html>\n"
    )


_RUN_COLUMNS = ("dataset", "outcome", "from", "to", "rows", "quarantined")
_LAG_COLUMNS = ("dataset", "watermark", "last commit", "lag", "rows so far", "failed ranges")


def _head(run: RunRecord) -> str:
    ended = f"{run.ended_at:%Y-%m-%d %H:%M:%SZ}, after {_seconds(run):,.1f} s" if run.ended_at else "not ended"
    facts = f"{run.started_at:%Y-%m-%d %H:%M:%SZ} to {ended}; {_rows(run):,} rows of {len(run.datasets):,} dataset(s)"
    status = escape(run.status)
    return (
        f'<h1>Job {escape(run.job)}: <span class="{status}">{status}</span></h1>\n'
        f'<p>{escape(facts)}<br/><span class="dim">run {escape(run.run_id)}</span></p>\n'
    )


def _run_rows(run: RunRecord) -> Iterable[tuple[object, ...]]:
    for urn, one in sorted(run.datasets.items(), key=lambda pair: (pair[1].outcome.is_good, pair[0])):
        yield urn, one.outcome, one.low or "-", one.high or "-", one.rows, one.quarantined


def _errors(run: RunRecord) -> Iterable[tuple[object, ...]]:
    return ((urn, one.error) for urn, one in sorted(run.datasets.items()) if one.error)


def _lag_rows(states: Mapping[str, DatasetState], now: datetime) -> Iterable[tuple[object, ...]]:
    for urn, state in sorted(states.items(), key=lambda pair: (pair[1].updated_at, pair[0])):
        lag = _span((now - state.updated_at).total_seconds())
        when = f"{state.updated_at:%Y-%m-%d %H:%M:%SZ}"
        yield urn, state.watermark or "-", when, lag, state.totals.rows_read, ", ".join(state.failed_ranges)


def _span(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _rows(run: RunRecord) -> int:
    return sum(one.rows for one in run.datasets.values())


def _seconds(run: RunRecord) -> float:
    return (run.ended_at - run.started_at).total_seconds() if run.ended_at is not None else 0.0


def _section(title: str, content: str, instead: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content or f'<p>{escape(instead)}</p>'}\n"


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    shown = list(rows)
    if not shown:
        return ""
    numbers = [isinstance(value, int) for value in shown[0]]
    classes = (' class="number"' if is_number else "" for is_number in numbers)
    head = "".join(f"<th{one}>{escape(name)}</th>" for one, name in zip(classes, names, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in shown[:MOST_ROWS])
    more = f'<p class="dim">... {len(shown) - MOST_ROWS:,} more</p>' if len(shown) > MOST_ROWS else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>{more}'


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    text = escape(str(value))
    if isinstance(value, DatasetOutcome):
        return f'<td class="{text}">{text}</td>'
    return f'<td class="text">{text}</td>' if len(str(value)) > _LONG else f"<td>{text}</td>"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _bars(values: Sequence[tuple[RunRecord, float]], chosen: RunRecord, unit: str) -> str:
    """Return bars, oldest run first; the bar of the chosen run is dark, failed runs are red."""
    top = max((value for _, value in values), default=0) or 1
    width = _PLOT_WIDTH / max(len(values), 1)
    bars = []
    for number, (run, value) in enumerate(values):
        height = value / top * (_PLOT_HEIGHT - 30)
        kind = ' class="bad"' if run.status in ("failed", "interrupted") else ""
        opacity = "1" if run.run_id == chosen.run_id else ".55"
        told = f"{run.started_at:%Y-%m-%d %H:%M:%SZ}, {run.status}: {_amount(value)} {unit}"
        bars.append(
            f'<rect x="{number * width + 1:.1f}" y="{_PLOT_HEIGHT - 15 - height:.1f}" width="{max(width - 2, 1):.1f}" '
            f'height="{max(height, 1):.1f}"{kind} opacity="{opacity}"><title>{escape(told)}</title></rect>'
        )
    first, last = (f"{one.started_at:%Y-%m-%d %H:%M}" for one in (values[0][0], values[-1][0]))
    return (
        f'<svg viewBox="0 0 {_PLOT_WIDTH} {_PLOT_HEIGHT}" width="{_PLOT_WIDTH}" role="img">'
        f'<text x="2" y="11">{_amount(top)} {unit}</text>{"".join(bars)}'
        f'<text x="2" y="{_PLOT_HEIGHT - 3}">{first}</text>'
        f'<text x="{_PLOT_WIDTH - 2}" y="{_PLOT_HEIGHT - 3}" text-anchor="end">{last}</text></svg>'
    )
