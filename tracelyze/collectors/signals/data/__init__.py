"""What is recorded of the data: batches, waiting for the loader, its worker processes."""
