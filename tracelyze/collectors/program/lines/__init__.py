"""Lines of the script that something of the program goes back to: where it was made."""
