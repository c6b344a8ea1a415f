"""Diagnoses of how a run ended."""
