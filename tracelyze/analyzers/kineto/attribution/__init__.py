"""Where the time of each step went: device work by kind, idle time by cause, collectives, kernels.

Begin with `attribution`; `summary` is what rules see. Imports `timeline` and `reading`.
"""
