"""What is recorded only if it is asked for, because it calls the program's model once more: `collect --probe`."""
