"""What the model was fed: passes over the data, validation, calls of loss functions, texts.

Begin with `passes`.
"""
