"""A trace in memory: device work, launches and host activity as columns, and the steps found in them.

Begin with `trace`.
"""
