"""What the optimization did: learning rates, updates, accumulation, overflows, gradients by layer, leaks of graphs.

Begin with `updates`.
"""
