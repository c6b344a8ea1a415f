"""Diagnoses of fine-tuning: which targets count, and how they are weighed."""
