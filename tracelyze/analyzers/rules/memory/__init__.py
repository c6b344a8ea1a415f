"""Diagnoses of memory."""
