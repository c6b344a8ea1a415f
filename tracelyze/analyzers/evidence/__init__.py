"""What a finding shows beside its words: charts, pictures that several rules share, and when something happened.

Begin with `timing`. Imports `recorded` and `script`.
"""
