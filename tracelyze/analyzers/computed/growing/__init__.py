"""What grows from step to step: hooks, and what may take the memory of the host."""
