"""Examples that are the script's own statement with one thing changed, where no edit of it is known to be enough."""
