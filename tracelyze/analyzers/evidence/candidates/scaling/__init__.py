"""Inputs that are not scaled: pixels that nothing divides, and scaled values that nothing uses."""
