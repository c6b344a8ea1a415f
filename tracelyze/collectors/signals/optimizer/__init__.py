"""What is recorded of optimizers: their learning rates, and the schedulers that set them."""
