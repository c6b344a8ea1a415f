"""Diagnoses of evaluation: modes, validation curves."""
