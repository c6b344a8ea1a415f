"""Diagnoses of the model: what its layers and outputs can express."""
