"""Lines that compute with what is no tensor: rewards that are rounded, arrays that are divided or cast."""
