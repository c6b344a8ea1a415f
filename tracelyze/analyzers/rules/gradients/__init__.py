"""Diagnoses of gradients."""
