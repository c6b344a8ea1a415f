"""What steps that take far longer than the others have in common."""
