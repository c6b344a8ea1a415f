"""Diagnoses of training on several devices."""
