"""Diagnoses of what a loss function is given: outputs, targets, positions."""
