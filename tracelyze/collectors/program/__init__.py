"""What the observed program is made of: outermost module calls, optimizers, trainings, updates without an optimizer,
and the lines of the script.

Begin with `calls`. Imports `tensors`, `internals` and `system`.
"""
