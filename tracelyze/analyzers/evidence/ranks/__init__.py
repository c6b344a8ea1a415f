"""What ranks and workers are given: batches side by side, and the line that gives each a part of the samples."""
