"""ReLUs that put out nothing, units of them that do, and the biases that keep their input below zero.

Begin with `relus`.
"""
