"""Diagnoses of the data and its order."""
