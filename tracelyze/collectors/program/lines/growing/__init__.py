"""Lines of the script by which something that it holds grows from step to step."""
