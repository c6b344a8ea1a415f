"""Losses and gradients that leap: of single batches, of weights that became worse, of another objective."""
