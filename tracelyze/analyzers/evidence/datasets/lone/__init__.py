"""Batches that hold one sample, and the lines that make their loaders."""
