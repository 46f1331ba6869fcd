"""Pictures of distributions as files, by matplotlib: a folder with an index page, or one file."""

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from qbench.errors import InputError
from qbench.judging import ValueDistribution
from qbench.number_text import counted
from qbench.reporting.distribution_chart import clipped_text, codes_text, facts_of, real
from qbench.reporting.places import file_name
from qbench.reporting.png import BLUE, INK, LINE, RED, SOFT, png_bytes, safe_text
from qbench.storage import visible, write_bytes, write_text

_DPI = 100
_WIDTH, _ROW = 12.0, 2.6
_BAND = "#dcebf8"
_SUFFIXES = (".png", ".pdf")
_MARK = '<meta name="generator" content="qbench --plot">'
_MOST_ROWS = 40
"""A taller picture is too large for many viewers."""


def check_plot(path: Path, doing: str) -> None:
    """Check, before the work, that pictures can be written to ``path``.

    Raises:
        InputError: a suffix of another kind of picture, or a folder whose index page is not ours.
    """
    if path.suffix and path.suffix not in _SUFFIXES and not path.is_dir():
        raise InputError(
            doing,
            found=f"--plot '{path}'",
            expected="a folder, or a file that ends with .png or .pdf",
            remedy="Name one of these.",
        )
    index = path / "index.html"
    if not path.suffix and index.is_file():
        with index.open("rb") as file:
            is_ours = _MARK.encode() in file.read(1024)
        if not is_ours:
            raise InputError(
                doing,
                found=f"'{index}', which --plot has not written",
                expected="a folder without an index.html of something else",
                remedy="Name another folder.",
            )


def most_telling_values(
    ones: Sequence[ValueDistribution], most: int
) -> tuple[tuple[ValueDistribution, ...], int]:
    """At most ``most`` of ``ones`` in their order, and how many are left out: those that are
    clipped least and use most of their codes.
    """
    worst = sorted(
        range(len(ones)), key=lambda at: (-(ones[at].clipped or 0.0), -ones[at].unused, at)
    )
    kept = sorted(worst[:most])
    return tuple(ones[at] for at in kept), len(ones) - len(kept)


def write_distributions(
    ones: Sequence[ValueDistribution], path: Path, title: str, most: int
) -> tuple[Path, int]:
    """Draw ``ones`` to ``path``: a ``.png`` with one row for a value, a ``.pdf`` with one page,
    or a folder with one PNG file and an index page.

    Returns:
        The file to open, and how many values are left out.

    Raises:
        StoreError: a file cannot be written.
    """
    is_tall = path.suffix == ".png" and not path.is_dir()
    chosen, left = most_telling_values(ones, min(most, _MOST_ROWS) if is_tall else most)
    if is_tall:
        write_bytes(path, png_bytes(_figure(chosen), _DPI))
        return path, left
    if path.suffix == ".pdf" and not path.is_dir():
        write_bytes(path, _pdf(chosen))
        return path, left
    for one in chosen:
        write_bytes(path / f"{file_name(one.value)}.png", png_bytes(_figure([one]), _DPI))
    write_text(path / "index.html", _index(chosen, title, left))
    return path / "index.html", left


def _pdf(ones: Sequence[ValueDistribution]) -> bytes:
    from matplotlib.backends.backend_pdf import PdfPages

    held = io.BytesIO()
    with PdfPages(held, metadata={"CreationDate": None, "Producer": None}) as pages:
        for one in ones:
            pages.savefig(_figure([one]))
    return held.getvalue()


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;color:#1b1d20;background:#fff;margin:1.5rem auto;"
    "max-width:76rem;padding:0 1rem}h1{font-size:1.4rem}h2{font-size:1.05rem;margin:0}"
    "h1,h2,figcaption{overflow-wrap:anywhere}figure{margin:1.6rem 0}figcaption{color:#5d636c;"
    "font-size:.9rem}figure a{display:block;overflow-x:auto}img{width:100%;min-width:46rem;"
    "height:auto;display:block}"
)


def _index(ones: Sequence[ValueDistribution], title: str, left: int) -> str:
    figures = []
    for one in ones:
        name = file_name(one.value)
        words = "; ".join(f"{term}: {text}" for term, text in facts_of(one))
        figures.append(
            f'<figure id="{name}"><h2>{escape(one.value)}</h2><a href="{name}.png">'
            f'<img src="{name}.png" loading="lazy" alt="{escape(words)}"></a>'
            f"<figcaption>{escape(words)}</figcaption></figure>"
        )
    rest = f"; {counted(left, 'value')} left out, which lose least (--plots)" if left else ""
    lede = (
        f"{counted(len(ones), 'value')}{rest}. Heights are logarithms. Blue: the chosen range; "
        "red: what is clipped, and codes that never occur."
    )
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_MARK}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{lede}</p>{''.join(figures)}</body></html>\n"
    )
    return visible(page, keep="\n\t")


def _figure(ones: Sequence[ValueDistribution]) -> Any:  # noqa: ANN401 - matplotlib has no types
    from matplotlib.figure import Figure

    height = _ROW * max(len(ones), 1)
    figure = Figure(figsize=(_WIDTH, height), facecolor="white")
    for row, one in enumerate(ones):
        panels = [_draw_numbers]
        panels += [_draw_codes] * bool(one.codes) + [_draw_channels] * bool(one.channels)
        bottom = (height - (row + 1) * _ROW + 0.35) / height
        _head(figure, one, 1 - (row * _ROW + 0.25) / height)
        wide = (_WIDTH - 0.7) / len(panels)
        for place, draw in enumerate(panels):
            left = (0.6 + place * wide) / _WIDTH
            axis = figure.add_axes((left, bottom, (wide - 0.55) / _WIDTH, 1.7 / height))
            draw(axis, one)
            _plain(axis)
    return figure


def _head(figure: Any, one: ValueDistribution, y: float) -> None:  # noqa: ANN401
    name = one.value if len(one.value) <= 70 else f"{one.value[:34]}…{one.value[-34:]}"
    figure.text(0.6 / _WIDTH, y, safe_text(name), color=INK, fontsize=10, fontweight="bold")
    words = f"{one.qparams[:100]}   {one.place[:60]}".strip()
    figure.text(
        1 - 0.1 / _WIDTH, y, safe_text(words), color=SOFT, fontsize=7.5, horizontalalignment="right"
    )


def _draw_numbers(axis: Any, one: ValueDistribution) -> None:  # noqa: ANN401
    low, high = one.range_low, one.range_high
    wide = (one.right - one.left) or 1.0
    edges = [one.left + wide * at / len(one.bins) for at in range(len(one.bins) + 1)]
    cut = [0] * len(one.bins)
    inside = list(one.bins)
    if low is not None and high is not None:
        axis.axvspan(low, high, color=_BAND, zorder=0)
        for edge in (low, high):
            axis.axvline(edge, color=BLUE, linewidth=1)
        for at, count in enumerate(one.bins if one.clipped else ()):
            middle = (edges[at] + edges[at + 1]) / 2
            if not low <= middle <= high:
                cut[at], inside[at] = count, 0
    axis.stairs(inside, edges, fill=True, color=SOFT)
    axis.stairs(cut, edges, fill=True, color=RED)
    for place, (name, start, end) in enumerate(one.choices):
        y = 0.92 - 0.12 * place
        axis.plot([start, end], [y, y], transform=axis.get_xaxis_transform(), color=BLUE)
        axis.text(end, y, f" {name}", transform=axis.get_xaxis_transform(), fontsize=7, va="center")
    _log_heights(axis, max(one.bins, default=1), room=1.6 if one.choices else 1.0)
    words = f"{real(one.low)} to {real(one.high)}"
    words += f", clipped: {clipped_text(one)}" if one.qtype else ""
    axis.set_title(words, fontsize=7.5, color=RED if one.clipped else INK, loc="left")


def _log_heights(axis: Any, most: int, room: float = 1.0) -> None:  # noqa: ANN401
    from matplotlib.ticker import NullFormatter

    axis.set_yscale("log")
    axis.set_ylim(0.7, max(1.3 * most**room, 2.0))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _draw_codes(axis: Any, one: ValueDistribution) -> None:  # noqa: ANN401
    places = list(range(len(one.codes) + 1))
    axis.stairs(one.codes, places, fill=True, color=SOFT)
    empty = [at + 0.5 for at, count in enumerate(one.codes) if not count]
    axis.plot(
        empty,
        [0.0] * len(empty),
        "|",
        color=RED,
        markersize=5,
        clip_on=False,
        transform=axis.get_xaxis_transform(),
    )
    _log_heights(axis, max(one.codes))
    axis.set_xlim(0, len(one.codes))
    axis.set_title(f"codes: {codes_text(one).split(';')[0]}", fontsize=7.5, color=INK, loc="left")


def _draw_channels(axis: Any, one: ValueDistribution) -> None:  # noqa: ANN401
    places = [(channel.first + channel.last) / 2 for channel in one.channels]
    wide = 0.9 * (one.channels[0].last + 1)
    tops = [channel.range_high for channel in one.channels]
    bottoms = [channel.range_low for channel in one.channels]
    tall = [top - bottom for top, bottom in zip(tops, bottoms, strict=True)]
    axis.bar(places, tall, wide, bottoms, color=_BAND, edgecolor=BLUE, linewidth=0.3)
    highs, lows = [c.high for c in one.channels], [c.low for c in one.channels]
    axis.vlines(places, lows, highs, color=INK, linewidth=1)
    axis.vlines(places, tops, [max(h, t) for h, t in zip(highs, tops, strict=True)], color=RED)
    axis.vlines(places, bottoms, [min(w, b) for w, b in zip(lows, bottoms, strict=True)], color=RED)
    words = "ranges by channel"
    if any(channel.used is not None for channel in one.channels):
        shares = [(channel.used or 0) / max(one.code_count, 1) for channel in one.channels]
        other = axis.twinx()
        other.plot(places, shares, color="#7d5a00", linewidth=1)
        other.set_ylim(0, 1.05)
        other.tick_params(labelsize=6, length=2, colors="#7d5a00")
        other.yaxis.set_major_formatter("{x:.0%}")
        for side in ("top", "left"):
            other.spines[side].set_visible(False)
        words += "; brown: share of codes in use"
    axis.set_title(words, fontsize=7.5, color=INK, loc="left")


def _plain(axis: Any) -> None:  # noqa: ANN401
    axis.tick_params(labelsize=6.5, length=2, colors=SOFT, which="both")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(LINE)
