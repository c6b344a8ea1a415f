"""Weights that are evaluated in place of those that train: of a copy, or put into the model for a while."""
