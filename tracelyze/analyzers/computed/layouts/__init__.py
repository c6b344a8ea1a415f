"""Which dimensions of a batch hold its samples, and which its positions."""
