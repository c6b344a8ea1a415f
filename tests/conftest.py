"""Settings of all tests."""

import os

from hypothesis import settings

# No deadline: a busy machine is no failure. In continuous integration the same examples every time: a failure there is
# the change's own; new examples are for developers' machines.
settings.register_profile("tracelyze", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tracelyze")
