"""What every format says in the same words: the order of the findings, facts of a run, tracebacks.

Imports `escaping`; knows neither HTML nor any other format.
"""
