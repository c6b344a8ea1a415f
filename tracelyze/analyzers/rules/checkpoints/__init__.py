"""Diagnoses of weights that are kept and loaded."""
