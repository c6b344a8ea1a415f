"""What ranks do not average, one file for each cause of it."""
