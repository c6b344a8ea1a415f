"""What the model was fed: passes over the data, overlap with validation data, calls of loss functions, stages of a
curriculum.

Begin with `passes`.
"""
