"""A training that goes on from a file: what its first step showed, which states it lost, and how to restore them."""
