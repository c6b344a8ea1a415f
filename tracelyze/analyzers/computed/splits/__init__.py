"""Samples that are on both sides of a split: of loaders, of folds, of indices into tensors."""
