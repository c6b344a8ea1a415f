"""Stores of experiment trackers: MLflow, Trackio, TensorBoard, Weights & Biases."""
