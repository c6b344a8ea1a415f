"""What is recorded of the model: modes, activations, weights and their updates, files of weights."""
