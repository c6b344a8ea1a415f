"""What the gradients were: by layer, unit and tensor, and where float16 overflows.

Begin with `depth`.
"""
