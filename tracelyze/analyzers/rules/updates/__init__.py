"""Diagnoses of how the optimizer changes the weights: its rate, what it holds, what a step does."""
