"""tracelyze finds out, after the fact, why a PyTorch training run went wrong.

`tracelyze collect -- python train.py` records a run; `tracelyze diagnose RUN` says what went wrong with it.
From Python: :func:`tracelyze.analyzers.diagnose`; in a training script :func:`log` and :class:`Recorder`.
Importing this package imports nothing heavy.
"""

from tracelyze.collectors.script import Recorder, log

__all__ = ["Recorder", "log"]
__version__ = "0.1.0"
