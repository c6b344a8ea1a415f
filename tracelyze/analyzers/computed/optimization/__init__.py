"""What the optimization did: learning rates, updates, accumulation, leaks of graphs.

Begin with `updates`.
"""
