"""A run of many ranks: each process is judged by itself to a small summary, and one reduction makes the diagnosis.

Begin with `summary` (the map: one process in, at most some kilobytes out). `source` says what processes a run has
without reading them, `answers` puts together what one rule said of all of them, and `cores` has the processes of this
machine share the map. `engine` brings these together; any other `map`, such as Ray's, can take the place of `cores`.
"""
