"""Diagnoses of gradient clipping."""
