"""What is recorded of gradients: their norm, their life from backward to step, clipping, and the graphs they come
from.
"""
