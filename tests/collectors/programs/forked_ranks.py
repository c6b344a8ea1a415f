"""Runs a script as the ranks of one job: `forked_ranks.py RANKS [--independent] SCRIPT ARGUMENTS...`.

What torchrun says to a rank by its environment, this does; but ranks are forked, so that they have in memory what this
process has (tests/fork_server). When one fails the others get SIGTERM, unless they are `--independent`.
"""

import ctypes
import os
import pathlib
import signal
import socket
import sys
import types

if sys.argv[2] == "--independent":
    independent = sys.argv.pop(2)
else:
    independent = None
ranks, script = int(sys.argv[1]), sys.argv[2]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
children = []
for rank in range(ranks):  # noqa: B007  # a child leaves the loop and keeps its rank
    child = os.fork()
    if child == 0:
        break
    children.append(child)
else:
    failed = 0
    while children:
        ended, status = os.wait()
        children.remove(ended)
        if status and not failed:
            failed = status
            for other in () if independent else children:
                os.kill(other, signal.SIGTERM)
    sys.exit(1 if failed else 0)

PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # no rank stays behind when a test ends this program
os.environ |= {
    "RANK": str(rank),
    "LOCAL_RANK": str(rank),
    "WORLD_SIZE": str(ranks),
    "LOCAL_WORLD_SIZE": str(ranks),
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": str(port),
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_RUN_ID": str(port),
}
sys.argv[:] = sys.argv[2:]
sys.path[0] = str(pathlib.Path(script).resolve().parent)
module = sys.modules["__main__"] = types.ModuleType("__main__")
names = vars(module)
names |= {"__builtins__": __builtins__, "__file__": script}
exec(compile(pathlib.Path(script).read_bytes(), script, "exec"), names)
