"""Where in the script a loss is computed, and which of its operations broke."""
