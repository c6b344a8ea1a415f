"""Diagnoses of time: loaders, slow steps, debugging modes."""
