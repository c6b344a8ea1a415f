"""What goes on in the device itself: its memory and its arithmetic."""
