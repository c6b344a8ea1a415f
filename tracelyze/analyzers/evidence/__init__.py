"""What a finding shows: charts, pictures that several rules share, and when something happened in units of the run.

Begin with `timing`. Imports `recorded`.
"""
