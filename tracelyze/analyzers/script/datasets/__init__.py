"""Lines and examples about the datasets of a script."""
