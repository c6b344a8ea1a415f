"""Runs loops of many idioms, and prints which functions of ours their wrappers call that torch.compile would meet."""

import runpy
import sys
from pathlib import Path

import torch

from tracelyze import collectors
from tracelyze.collectors.hooks import install
from tracelyze.collectors.internals import compiler

OURS = str(Path(collectors.__file__).parent)
HOOKS = str(Path(OURS) / "hooks")
wrappers, hidden = set(), {function.__code__ for function in install.called_by_wrappers()}
compiler.hide = lambda torch, those, _methods: wrappers.update(wrapper.__code__ for wrapper in those)
install._hide_from_compiler(torch)
met = set()


def noted(frame, event, _argument):
    caller, code = frame.f_back, frame.f_code
    if event != "call" or caller is None or caller.f_code not in wrappers or code in hidden:
        return
    if code.co_filename.startswith(OURS) and not code.co_filename.startswith(HOOKS):
        met.add(f"{caller.f_code.co_name} calls {code.co_name} of {Path(code.co_filename).name}")


sys.setprofile(noted)
sys.argv = ["loops.py"]
runpy.run_path(str(Path(__file__).parent / "loops.py"), run_name="__main__")
sys.setprofile(None)
print(f"{len(wrappers)} wrappers:", *sorted(met), sep="\n")
