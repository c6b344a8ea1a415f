"""Losses of outputs for which a mask leaves nothing."""
