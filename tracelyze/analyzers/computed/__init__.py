"""Measures that several rules share, each computed from the tables of a run: see the rooms below.

A measure of one rule alone lies in the room of that rule. Imports `recorded`, `statistics`, `script` and `evidence`;
knows no rule.
"""
