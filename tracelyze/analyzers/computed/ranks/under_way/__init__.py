"""Buffers that are read while many requests are under way into them: read off the recorded lines of a script."""
