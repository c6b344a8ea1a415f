"""What goes on between the ranks."""
