"""Building blocks of plots in the form of plotly.js, and how text and numbers get there. It knows nothing of latencies."""

import html
from collections.abc import Iterable, Mapping, Sequence

BLUE, ORANGE, GREEN, RED, GREY = "#3d85c6", "#e08a1e", "#2f9e6e", "#d9434f", "#8c919a"
"""Told apart on white and on black, and by most who do not see all colours."""

Trace = Mapping[str, object]


def plain(text: str) -> str:
    """Return text from outside so that plotly, which reads `<b>`, entities and `%{}` in labels, shows it as it is."""
    return html.escape(text, quote=False).replace("%{", "% {")


def axis(title: str, **more: object) -> dict[str, object]:
    """Return an axis; names of `more` are plotly's."""
    numbers = {"separatethousands": True, "exponentformat": "none"}
    return {
        "title": {"text": title, "standoff": 12},
        "automargin": True,
        "zeroline": False,
        **numbers,
        **more,
    }


def dots(name: str, points: Sequence[tuple[float, float, str]], colour: str) -> dict[str, object]:
    """Return a dot for each (x, milliseconds, what else to tell of it)."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": rounded(x for x, _, _ in points),
        "y": rounded(y for _, y, _ in points),
        "text": [text for _, _, text in points],
        "marker": {"color": colour, "size": 6, "opacity": 0.6},
        "hovertemplate": "%{y:.4g} ms<br>%{text}<extra></extra>",
    }


def rounded(values: Iterable[float]) -> list[float]:
    """Return numbers to four places: of seconds a tenth of a millisecond, finer than any screen."""
    return [round(value, 4) for value in values]
