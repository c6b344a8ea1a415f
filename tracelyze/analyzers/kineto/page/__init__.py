"""What a report shows of a trace: lanes of a timeline, charts and tables.

Begin with `picture`. Imports `attribution`, `reading` and `timeline`.
"""
