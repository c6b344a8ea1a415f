"""The order in which a training goes through its data: read from first to last, sorted by label, the same again.

Begin with `repeated_order`.
"""
