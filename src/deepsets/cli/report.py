"""A page with the scores of a model and plots: confusion matrix and calibration, or predicted against true values."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np

from ..files import atomic_path
from .metrics import calibration

_SIZE, _MARGIN, _POINTS, _CLASSES = 340, 50, 2000, 30
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .8rem;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}svg text{font:11px system-ui,sans-serif;fill:#333}figure{margin:2rem 0}"""


def write_report(path: Path, result: dict[str, Any], drawing: Any) -> None:
    """Write a page that needs no other files.

    `result` is what `deepsets evaluate --json` prints; `drawing` holds predictions, true values, and the classes or the
    names of the targets, or is None.
    """
    parts = [_scores(result["methods"])]
    if drawing is not None:
        found, wanted, names = drawing
        if isinstance(names, np.ndarray):
            parts += [_confusion(found, wanted, names), _calibration(found, wanted)]
        else:
            parts += [_scatter(found[:, j], wanted[:, j], name) for j, name in enumerate(names)]
    facts = f"{result['sets']:,} sets of {result['table']}, {result['labelled']:,} labelled"
    title = f"Evaluation of {html.escape(result['model'])}"
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"</head><body><h1>{title}</h1><p>{html.escape(facts)}</p>{''.join(parts)}</body></html>\n"
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _scores(rows: list[dict[str, Any]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row.values()) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


def _confusion(probabilities: np.ndarray, codes: np.ndarray, classes: np.ndarray) -> str:
    """True classes as rows, predicted ones as columns; the most frequent ones where there are many."""
    order = np.sort(np.argsort(-np.bincount(codes, minlength=len(classes)), kind="stable")[:_CLASSES])
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (codes, probabilities.argmax(1)), 1)
    counts = counts[np.ix_(order, order)]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    names = [html.escape(str(label)[:16]) for label in classes[order]]
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        f"<tr><th>{name}</th>"
        + "".join(
            f'<td style="background:rgba(40,110,180,{share:.2f});color:#{"fff" if share > 0.6 else 222}">{count}</td>'
            for count, share in zip(line, share_line, strict=True)
        )
        + "</tr>"
        for name, line, share_line in zip(names, counts, shares, strict=True)
    )
    return (
        f'<figure><h2>Confusion matrix</h2><table class="confusion"><tr><th>true \\ predicted</th>{head}</tr>{rows}'
        "</table></figure>"
    )


def _calibration(probabilities: np.ndarray, codes: np.ndarray) -> str:
    error, bins = calibration(probabilities, codes)
    most = max(b["count"] for b in bins)
    marks = "".join(
        f'<circle cx="{_x(b["confidence"], 0, 1):.1f}" cy="{_y(b["accuracy"], 0, 1):.1f}" '
        f'r="{3 + 7 * (b["count"] / most) ** 0.5:.1f}" fill="#286eb4"><title>{b["count"]:,}</title></circle>'
        for b in bins
    )
    return f"<figure><h2>Calibration</h2><p>Expected calibration error {error:.3f}.</p>" + _axes(
        0, 1, "predicted probability", "share that is right", marks
    )


def _scatter(predicted: np.ndarray, wanted: np.ndarray, name: str) -> str:
    step = max(1, len(wanted) // _POINTS)
    low, high = (float(f(np.concatenate([predicted, wanted]))) for f in (np.min, np.max))
    high = high if high > low else low + 1.0
    marks = "".join(
        f'<circle cx="{_x(w, low, high):.1f}" cy="{_y(p, low, high):.1f}" r="2" fill="#286eb4" opacity="0.5"/>'
        for p, w in zip(predicted[::step], wanted[::step], strict=True)
    )
    title = html.escape(name)
    return f"<figure><h2>{title}</h2>" + _axes(low, high, f"true {title}", f"predicted {title}", marks)


def _axes(low: float, high: float, below: str, beside: str, marks: str) -> str:
    a, b = _MARGIN, _MARGIN + _SIZE
    return (
        f'<svg width="{b + 20}" height="{b + 40}" role="img" aria-label="{beside} against {below}">'
        f'<rect x="{a}" y="{a - 40}" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="#999"/>'
        f'<line x1="{a}" y1="{b - 40}" x2="{b}" y2="{a - 40}" stroke="#bbb" stroke-dasharray="4"/>{marks}'
        f'<text x="{a}" y="{b - 24}">{low:.3g}</text><text x="{b}" y="{b - 24}" text-anchor="end">{high:.3g}</text>'
        f'<text x="{(a + b) / 2}" y="{b - 6}" text-anchor="middle">{below}</text>'
        f'<text x="14" y="{(a + b) / 2 - 40}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(a + b) / 2 - 40})">{beside}</text></svg></figure>'
    )


def _x(value: float, low: float, high: float) -> float:
    return _MARGIN + _SIZE * (value - low) / (high - low)


def _y(value: float, low: float, high: float) -> float:
    return _MARGIN - 40 + _SIZE * (1 - (value - low) / (high - low))
