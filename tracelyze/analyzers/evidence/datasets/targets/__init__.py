"""What a script leaves out of its targets, and where it says so."""
