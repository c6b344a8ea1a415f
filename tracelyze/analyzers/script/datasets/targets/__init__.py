"""What a script leaves out of its targets or draws them from, and where it says so."""
