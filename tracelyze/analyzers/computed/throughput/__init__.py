"""Where time goes: waiting for data, other programs on the processors, pace, workload, outlying steps.

Begin with `waiting`.
"""
