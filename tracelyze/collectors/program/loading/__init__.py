"""Where a batch is made: in a worker, or in the training process."""
