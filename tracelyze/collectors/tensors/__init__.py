"""Reading the program's tensors without being noticed: norms, fingerprints, values that autograd saved, read-back
from a device, and when it is safe to compute at all.

Begin with `safe_computing` and `readback`. Imports nothing else of the collector.
"""
