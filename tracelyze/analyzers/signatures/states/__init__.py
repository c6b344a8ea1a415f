"""Weights that a model takes in or hands out by name: its own, a file's, those that were kept."""
