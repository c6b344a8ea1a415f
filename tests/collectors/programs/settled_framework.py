"""A loop of `benchmarks/loops.py`, by its name, for 220 iterations. `--full`: no step is skipped.

Says how many steps were skipped.
"""

import sys
from pathlib import Path

import count_skipped
import torch

from tracelyze.collectors.recording.fast_path import path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))  # before this folder, which has a loops.py
import loops

if "--full" in sys.argv:
    path.SKIPPED_STEPS = 0
torch.manual_seed(0)
torch.set_num_threads(1)
made = 0


def done():
    global made
    made += 1
    return made >= 220


loops.LOOPS[sys.argv[1]][0](done)
print("skipped", count_skipped.skipped)
