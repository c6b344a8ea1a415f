"""The fast path through the hooks: steps that are like those before them are skipped, and leave a row all the same.

Begin with `path`. Imports the recording's dispatch, forwards and backwards, and what they import.
"""
