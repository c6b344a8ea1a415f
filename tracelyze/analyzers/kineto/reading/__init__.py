"""From the bytes of a trace file, or an imported trace, to columns in memory.

Begin with `reader`. Imports `timeline`.
"""
