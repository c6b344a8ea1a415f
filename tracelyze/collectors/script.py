"""What a script can say by itself: `tracelyze.log` what the hooks cannot see, `tracelyze.Recorder` records a block.

Imported with the package, so it imports nothing that is not there anyway. Until there are hooks, and when nothing is
recorded, every call returns at once. No call raises into the script.
"""

from __future__ import annotations

import os

from tracelyze.collectors import current

TYPE_CHECKING = False  # typing and pathlib take as long to import as Python takes to start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from tracelyze.collectors.recording.recorder import Recorder as Recorded


def log(
    *unnamed: Any, loss: Any = None, batch: Any = None, phase: str = "train", step: int | None = None, **values: Any
) -> None:
    """Record values of the current step, under their names: `tracelyze.log(loss=loss, batch=i, accuracy=0.9)`.

    `loss` and `values` are numbers, or tensors that hold one; a tensor on a device is read later, without waiting for
    it. `batch` identifies the batch (a number, a name, or a list of the samples' numbers or names), so that a finding
    about a step can say which one it was. `phase` is "train" or "eval". `step` is the script's own number of the step.

    Losses are judged where the hooks saw none: a loop without `Tensor.backward`, a loss computed outside of torch.
    Where they did, theirs count. Does nothing when nothing is recorded, and never raises: a value that cannot be
    recorded is left out, and the report says so.
    """
    recorder = current.active()
    if recorder is not None:
        recorder.logged(unnamed, values if loss is None else {"loss": loss} | values, batch, phase, step)


class Recorder:
    """Records what happens inside of a `with` block, in this process, without `tracelyze collect`.

        with tracelyze.Recorder("runs/first-try") as recorder:
            train()
        # then: tracelyze diagnose runs/first-try

    `run` is the run directory to make (default: runs/<script>-<time>). If somebody recorded there before, a number is
    appended; `recorder.run` is the folder in use, None if there is none. Within `tracelyze collect`, or within another
    block, this one adds nothing: the recording that is under way goes on, and `run` is its folder. An exception in the
    block is recorded and passed on. If no run can be made the block runs unrecorded, and one line on stderr says why;
    with TRACELYZE_DISABLE=1 it runs unrecorded without a word. Processes that the block starts are not recorded, other
    than by fork. `quiet`, `no_signal` and `profile_every` are the options of `tracelyze collect`.
    """

    def __init__(
        self,
        run: str | os.PathLike[str] | None = None,
        *,
        quiet: bool = False,
        no_signal: Sequence[str] = (),
        profile_every: int = 0,
    ) -> None:
        self.run: Path | None = None
        self._wanted = run
        self._options = (quiet, tuple(no_signal), profile_every)
        self._entered = 0
        self._own: Recorded | None = None

    def __enter__(self) -> Recorder:
        self._entered += 1
        if self._entered > 1 or os.environ.get("TRACELYZE_DISABLE", "") not in ("", "0"):
            return self
        try:
            under_way = current.active()
            if under_way is not None:
                self.run = under_way.run
                return self
            from tracelyze.collectors import in_process

            self._own = in_process.begin(self._wanted, *self._options)
            self.run = self._own.run
        except Exception as error:
            _say(f"not recording: {type(error).__name__}: {error}" if str(error) else f"not recording: {error!r}")
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._entered -= 1
        if self._entered or self._own is None:
            return
        own, self._own = self._own, None
        try:
            from tracelyze.collectors import in_process

            in_process.end(own, error)
        except Exception as failure:
            _say(f"the end was not recorded: {type(failure).__name__}: {failure}")


def _say(text: str) -> None:
    from tracelyze.collectors.system import notices

    notices.say(text)
