"""Diagnoses of mixed precision."""
