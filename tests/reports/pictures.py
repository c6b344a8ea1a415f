"""Pictures made by hand: a timeline whose every slice is known, and a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tracelyze.diagnosis import KINDS, Chart, Lane, Line, Listing, Picture, Timeline

KIND = {name: index for index, name in enumerate(KINDS)}


def lane(name: str, slices: list[tuple[float, float, int, int, str, int]]) -> Lane:
    """A lane from start, length, level, label, kind and how many activities each slice stands for."""
    return Lane(
        name=name,
        start=[one[0] for one in slices],
        length=[one[1] for one in slices],
        level=[one[2] for one in slices],
        label=[one[3] for one in slices],
        kind=[KIND[one[4]] for one in slices],
        merged=[one[5] for one in slices],
        busy=[one[1] / 2 if one[5] > 1 else one[1] for one in slices],
        slices=sum(one[5] for one in slices),
        busy_us=sum(one[1] for one in slices if one[2] == 0),
    )


def timeline(text: Callable[[], str]) -> Timeline:
    """100 ms: half of it a wait for the loader, then ten kernels with short ones between them."""
    kernels: list[tuple[float, float, int, int, str, int]] = []
    for index in range(10):
        kernels.append((50_000.0 + 5_000 * index, 4_000.0, 0, 2, "compute", 1))
        kernels.append((54_000.0 + 5_000 * index, 90.0, 0, 3, "copy", 40))
    return Timeline(
        title=text(),
        note=text(),
        length_us=100_000.0,
        unit_us=24.4,
        names=[text() for _ in range(4)],
        lanes=[
            replace(
                lane(text(), kernels),
                launched=[start - 30_000.0 if n == 1 else None for start, _, _, _, _, n in kernels],
            ),
            lane(text(), [(0.0, 50_000.0, 0, 0, "input", 1)]),
            lane(text(), [(0.0, 50_000.0, 0, 1, "input", 1), (10.0, 9_000.0, 1, 0, "operator", 1)]),
        ],
    )


def listing(text: Callable[[], str]) -> Listing:
    return Listing(
        title=text(),
        about=text(),
        columns=[("Kernel", "text"), ("class", "text"), ("Calls", ""), ("Time", "ms"), ("Of all", "share")],
        rows=[[text(), text(), 10, 40.0, 0.8], [text(), "", 2.5, 0.00312, None]],
        full=[text(), ""],
        rest=text(),
    )


def stack(text: Callable[[], str]) -> Chart:
    lines = [
        Line(text(), [50.0, 40.0, None], "bars", "compute"),
        Line(text(), [40.0, 50.0, 10.0], "bars", "input"),
        Line(text(), [10.0, float("nan"), 90.0], "bars", "no such kind"),
    ]
    return Chart(text(), text(), "ms", [5.0, 6.0, 7.0], lines, over="profiled-steps", unit="ms")


def picture(text: Callable[[], str]) -> Picture:
    return Picture([timeline(text), timeline(text)], [listing(text)])
