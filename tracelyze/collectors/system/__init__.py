"""What the operating system and Python say of a process: identity, exit status, memory limits, signal handlers,
threads of our own.

Begin with `identity`. Imports nothing else of the collector.
"""
