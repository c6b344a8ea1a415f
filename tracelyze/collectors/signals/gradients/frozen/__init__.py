"""What is frozen and should not be, and what was to be frozen and is not."""
