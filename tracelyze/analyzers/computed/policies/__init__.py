"""Losses of a policy, as their graphs showed at some steps: what they weigh its choices by, and who acted."""
