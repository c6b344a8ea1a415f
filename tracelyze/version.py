"""The version of the package. It stands alone, so that whoever needs it imports nothing else."""

__version__ = "0.1.0"
