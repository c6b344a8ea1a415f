"""Batch normalisations: the batches they see, their settings, and statistics that nothing has set."""
