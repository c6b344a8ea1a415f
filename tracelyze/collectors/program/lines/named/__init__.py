"""Lines that do something by a name, read off bytecode: nothing is wrapped, and what is found may never have run.

The analyzers name such a line only beside evidence of what happened.
"""
