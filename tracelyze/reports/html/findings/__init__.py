"""Findings on the page: their numbers, tracebacks and repairs. Begin with `finding`."""
