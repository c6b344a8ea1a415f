"""Files that a training opens and never closes."""
