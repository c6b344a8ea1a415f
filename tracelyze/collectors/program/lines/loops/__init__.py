"""Loops of the script: from where to where they reach, and the epochs and batches that they are written for."""
