"""The program that was recorded, as its lines read: where something is done in it, and what to write there instead.

Begin with `script_lines` and `editing`. Imports `recorded` and `rule`.
"""
