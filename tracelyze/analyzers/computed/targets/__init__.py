"""Targets that count in a loss: how many of them, micro-batch by micro-batch."""
