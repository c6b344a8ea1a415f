"""What happens with all that the hooks see: the recorder completes an event, the dispatch hands it to the signals,
the fast path skips that where nothing changed.

Begin with `recorder`. Imports everything below it: signals, program, cadence, tensors, storage, internals, system.
"""
