"""Diagnoses of reinforcement training, from the columns that trainers log: rewards, KL, entropy, lengths."""
