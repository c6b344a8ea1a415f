"""Dumps that torch writes of its own state: collectives and device memory, in pickles that are never executed."""
