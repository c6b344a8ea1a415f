"""What is recorded of the model and its optimizers: modes, activations, weights and their updates, learning rates."""
