"""Diagnoses of how gradients are accumulated and cleared around an optimizer step."""
