"""Targets of losses: how many of them count, micro-batch by micro-batch, and those that another model makes."""
