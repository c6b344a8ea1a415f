"""Measures that several rules share, each computed from the tables of a run: see the rooms below.

Imports `recorded`, `evidence` and `statistics`; knows no rule.
"""
