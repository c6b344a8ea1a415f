"""Where the collector stands in torch: functions, wrapped on their classes and modules, never on instances.

Every wrapper calls the original exactly once, passes arguments and result through, and steps aside while torch traces
or compiles, so that graphs are what they are without us. What is seen goes to the recorder, which never raises.
"""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any

from tracelyze.collectors import current
from tracelyze.collectors.hooks import (
    casts,
    checkpoint_files,
    construction,
    initializers,
    loaders,
    loggers,
    seeds,
    state_dicts,
)
from tracelyze.collectors.hooks.process_recorders import held, recorder, recorders
from tracelyze.collectors.hooks.training import (
    activation_checkpoints,
    backward_passes,
    functional_gradients,
    gradient_changes,
    losses_and_dropouts,
    module_calls,
    optimizer_steps,
)
from tracelyze.collectors.internals import compiler, private_names
from tracelyze.collectors.internals.by_identity import ByIdentity, SetByIdentity
from tracelyze.collectors.internals.own_frames import answer_as_original, leave_no_frame
from tracelyze.collectors.options import CollectOptions, from_environment
from tracelyze.collectors.program.calls import Calls, Recomputation
from tracelyze.collectors.program.fetches import Notes
from tracelyze.collectors.program.lines.construction import Constructions
from tracelyze.collectors.program.loading.timed_lines import TimedLines
from tracelyze.collectors.program.modules import vocabularies
from tracelyze.collectors.program.modules.fused_dropouts import FusedDropouts
from tracelyze.collectors.program.trainings import Clipped
from tracelyze.collectors.recording import ending
from tracelyze.collectors.recording.backwards import Backwards
from tracelyze.collectors.recording.calling import local
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path.cost import TimedFastPath
from tracelyze.collectors.recording.fast_path.path import FastPath
from tracelyze.collectors.recording.fast_path.rounds import Rounds
from tracelyze.collectors.recording.forwards import Forwards
from tracelyze.collectors.recording.per_thread import Recorders
from tracelyze.collectors.recording.recorder import Recorder
from tracelyze.collectors.recording.steps import Steps
from tracelyze.collectors.signals.context import ModuleWatch
from tracelyze.collectors.system import fatal_signals, threads
from tracelyze.collectors.system.program_signals import OwnErrors
from tracelyze.collectors.system.threads import Threads
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen

# Classes whose methods wrappers call, beside those that watch modules. A test finds one that is missing.
CALLED = (
    Recorder, Recorders, Dispatcher, Forwards, Backwards, Steps, Calls, Recomputation, FastPath, Rounds, TimedFastPath,
    Constructions, Notes, TimedLines, Threads, ByIdentity, SetByIdentity, FusedDropouts, OwnErrors,
    Clipped, functional_gradients.FunctionalLosses,
)  # fmt: skip


def install(torch: Any) -> None:
    """Record this process from now on, with the options of `collect`. Called right after torch was imported."""
    begin(torch, Path(os.environ["TRACELYZE_RUN"]), from_environment())


def begin(torch: Any, run: Path, options: CollectOptions) -> Recorder:
    """Record this process into the directory `run`."""
    first = Recorder(torch, run, options)
    held[:] = [Recorders(first)]
    if not current.is_set():
        _put_in_place(torch, options)
        current.set_finder(recorder)
    for name in private_names.lacking(torch, private_names.SUBSTITUTES):
        first.record_event("substitute", name, private_names.SUBSTITUTES[name])
    return first


def _put_in_place(torch: Any, options: CollectOptions) -> None:
    try:
        for family in (module_calls, losses_and_dropouts, backward_passes, optimizer_steps):
            family.install(torch)
        gradient_changes.install(torch, recorder, local)  # clipped gradients, scaled losses
        for put in (_construction, _loading):
            put(torch)
    except Exception:
        recorder().writer.off = True  # Wrappers that are in place stay, and do nothing.
        raise
    _hide_from_compiler(torch)
    ending.install(recorder, recorders, quiet=options.quiet)
    if hasattr(os, "register_at_fork"):
        # A forked child is a process of its own: it records, into a folder of its own, if it ever trains.
        os.register_at_fork(
            before=_pause_threads,
            after_in_parent=_resume_threads,
            after_in_child=lambda: _start_afresh(torch),
        )


def _hide_from_compiler(torch: Any) -> None:
    functional, utils, scaler = torch.nn.functional, torch.nn.utils, torch.amp.grad_scaler.GradScaler
    wrappers = [
        torch.nn.Module.__call__, torch.autograd.backward, utils.clip_grad_norm_, utils.clip_grad_value_,
        *([utils.clip_grads_with_norm_] if hasattr(utils, "clip_grads_with_norm_") else []),
        scaler.scale, scaler.unscale_, scaler.step,
        *compiler.wrappers,
        *(getattr(functional, name) for name in losses_and_dropouts.NAMES if hasattr(functional, name)),
    ]  # fmt: skip
    for wrapper in wrappers:
        answer_as_original(wrapper)
    compiler.hide(torch, wrappers, called_by_wrappers())


def called_by_wrappers() -> list[Any]:
    """The functions of ours that wrappers call: torch.compile must not try to compile them."""
    members = [member for kind in (*CALLED, *ModuleWatch.__subclasses__()) for member in vars(kind).values()]
    own = [member.fget if isinstance(member, property) else member for member in members]
    methods = [one for one in own if isinstance(one, types.FunctionType)]
    return [recorder, gradient_changes.peeked, leave_no_frame, vocabularies.made, may_compute, unseen, *methods]


def _pause_threads() -> None:
    for one in recorders():
        one.writer.threads.pause()


def _resume_threads() -> None:
    for one in recorders():
        one.writer.threads.after_fork()


def _start_afresh(torch: Any) -> None:
    fatal_signals.forget()
    threads.idents.clear()
    parent = recorder()
    for one in recorders():
        one.writer.let_go()
        one.fast_path.interrupt()
    child = Recorder(torch, parent.run, parent.options)
    child.writer.off = parent.off or parent.ended
    held[0] = Recorders(child)


def _construction(torch: Any) -> None:
    """Optimizers and modules as they are made, steps of learning-rate schedulers, weights that are filled or cast."""

    def made() -> None:
        loggers.wrap_when_imported(lambda logger, values: recorder().fire("reported", logger, values))
        checkpoint_files.wrap_when_imported(recorder)

    construction.install(torch, recorder, made)
    casts.install(torch, lambda frame: recorder().cast(frame))
    initializers.install(torch, lambda tensor: recorder().fire("filled", tensor))
    seeds.install(lambda name, is_seed: recorder().fire("seeded", name, is_seed))
    activation_checkpoints.install(torch, lambda inside: recorder().fire("checkpointed_in_vain", inside))


def _loading(torch: Any) -> None:
    """Batches from DataLoaders, and weights by name."""
    loaders.install(torch, recorder, local)
    state_dicts.install(torch, recorder)
    checkpoint_files.install(torch, recorder)
