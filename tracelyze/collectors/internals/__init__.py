"""What the collector must know of torch's and Python's insides: names that torch does not promise, keeping
torch.compile away from our functions, our own frames in tracebacks.

Begin with `private_names`. Imports nothing of the collector.
"""
