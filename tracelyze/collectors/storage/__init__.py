"""How rows reach the disk: rows that wait for their values, Arrow streams while the program runs, Parquet at its end.

Begin with `writer`. Imports `system` and the schema.
"""
