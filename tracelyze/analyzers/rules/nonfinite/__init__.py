"""Diagnoses of NaN and Inf in batches, activations, losses and gradients."""
