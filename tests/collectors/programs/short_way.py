"""Counts the steps of this process that take the short way, for the programs beside it."""

from tracelyze.collectors.storage import stream

passed = 0
_append = stream.TableStream.append_values


def _counted(self, values):
    global passed
    passed += 1
    _append(self, values)


stream.TableStream.append_values = _counted
