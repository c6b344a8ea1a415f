"""Tensors that backward reaches and no optimizer holds: why that is so, and the finding about them."""
