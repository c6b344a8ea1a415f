"""Lines about an optimizer: the one that makes it, with other parameters, and the clip before its step."""
