"""What ranks are given: their batches side by side, and the line that gives each of them a part of the samples."""
