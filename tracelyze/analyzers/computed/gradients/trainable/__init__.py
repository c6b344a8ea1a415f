"""What can be trained: tensors that require a gradient, and the optimizers that hold them or do not."""
