"""Diagnoses of the loss curve."""
