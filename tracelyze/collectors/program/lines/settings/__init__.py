"""Where a script sets what a diagnosis may ask to change: arguments of frameworks, and names that it gives a value."""
