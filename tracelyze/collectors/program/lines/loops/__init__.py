"""Loops of the script: the epochs and the batches that they are written for."""
