"""Statistics of step tables: robust, quadratic only in a few hundred block values, silent on healthy look-alikes."""

from tracelyze.analyzers.statistics.curves import (
    Divergence,
    Fluctuation,
    Rise,
    divergence,
    fluctuation,
    longest_run,
    outliers,
    rise,
    sawtooth,
    spikes,
)
from tracelyze.analyzers.statistics.growth import (
    Climb,
    PowerLaw,
    power_law_growth,
    slope_interval,
    straight_climb,
    warm_up,
)
from tracelyze.analyzers.statistics.robust import (
    block_medians,
    block_minima,
    kendall_tau,
    onset,
    runs_of,
    spread,
    theil_sen,
)

__all__ = [
    "Climb",
    "Divergence",
    "Fluctuation",
    "PowerLaw",
    "Rise",
    "block_medians",
    "block_minima",
    "divergence",
    "fluctuation",
    "kendall_tau",
    "longest_run",
    "onset",
    "outliers",
    "power_law_growth",
    "rise",
    "runs_of",
    "sawtooth",
    "slope_interval",
    "spikes",
    "spread",
    "straight_climb",
    "theil_sen",
    "warm_up",
]
