"""What the gradients were, as several rules read them: what overflows, clips, what is cleared."""
