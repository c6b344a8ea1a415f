"""Where the collector stands in torch: functions, wrapped on their classes and modules, never on instances.

Every wrapper calls the original exactly once, passes arguments and result through, and steps aside while torch traces
or compiles, so that graphs are what they are without us. What is seen goes to the recorder, which never raises.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from tracelyze.collectors import current
from tracelyze.collectors.hooks import (
    activation_checkpoints,
    casts,
    checkpoint_files,
    construction,
    functional_gradients,
    gradient_changes,
    initializers,
    loaders,
    loggers,
    modes,
    seeds,
    state_dicts,
)
from tracelyze.collectors.internals import compiler, private_names
from tracelyze.collectors.internals.by_identity import ByIdentity, SetByIdentity
from tracelyze.collectors.internals.own_frames import answer_as_original, leave_no_frame, unseen_by_warnings
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
from tracelyze.collectors.recording.fast_path.path import FastPath, this_thread
from tracelyze.collectors.recording.fast_path.rounds import Rounds
from tracelyze.collectors.recording.forwards import Forwards
from tracelyze.collectors.recording.per_thread import Recorders
from tracelyze.collectors.recording.recorder import Recorder
from tracelyze.collectors.recording.steps import Steps
from tracelyze.collectors.signals.context import ModuleWatch
from tracelyze.collectors.system import fatal_signals, threads
from tracelyze.collectors.system.program_signals import OwnErrors
from tracelyze.collectors.system.threads import Threads
from tracelyze.collectors.tensors import graphs
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen

LOSSES = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "kl_div", "gaussian_nll_loss", "poisson_nll_loss", "ctc_loss",
    "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "soft_margin_loss",
    "multi_margin_loss", "multilabel_soft_margin_loss",
)  # fmt: skip
# Classes whose methods wrappers call, beside those that watch modules. A test finds one that is missing.
CALLED = (
    Recorder, Recorders, Dispatcher, Forwards, Backwards, Steps, Calls, Recomputation, FastPath, Rounds, TimedFastPath,
    Constructions, Notes, TimedLines, Threads, ByIdentity, SetByIdentity, FusedDropouts, OwnErrors,
    Clipped, functional_gradients.FunctionalLosses,
)  # fmt: skip
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


_current: list[Recorders] = []  # of this process: a single element, replaced in a child after a fork


def install(torch: Any) -> None:
    """Record this process from now on, with the options of `collect`. Called right after torch was imported."""
    begin(torch, Path(os.environ["TRACELYZE_RUN"]), from_environment())


def begin(torch: Any, run: Path, options: CollectOptions) -> Recorder:
    """Record this process into the directory `run`. The hooks are put in place once and stay; recorders come and go."""
    first = Recorder(torch, run, options)
    _current[:] = [Recorders(first)]
    if not current.is_set():
        _put_in_place(torch, options)
        current.set_finder(recorder)
    for name in private_names.lacking(torch, private_names.SUBSTITUTES):
        first.record_event("substitute", name, private_names.SUBSTITUTES[name])
    return first


def _put_in_place(torch: Any, options: CollectOptions) -> None:
    try:
        for put in (_modules, _functions, _backward, _optimizers, _changes, _construction, _loading):
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
        *(getattr(functional, name) for name in (*LOSSES, *DROPOUTS) if hasattr(functional, name)),
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


def recorder() -> Recorder:
    """The recorder of this thread: its own, or that of the process."""
    return _current[0].local.own or _current[0].first


def recorders() -> list[Recorder]:
    """All recorders of this process."""
    return _current[0].everyone()


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
    _current[0] = Recorders(child)


def _modules(torch: Any) -> None:
    """Outermost calls of modules. A patched `__call__` costs a quarter of a global forward hook and warns nobody.

    A call takes one of four ways: a module within another one is only called, or shown to who watches these (`watch`);
    an outermost one is checked by the fast path, where that expects it, or else recorded in full.
    """
    owner = torch.nn.Module
    original = owner.__call__
    clock, calling, skipping = perf_counter, local, this_thread
    tracing = private_names.find(torch, private_names.TRACING) or (lambda: None)
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)
    loss_kind = private_names.find(torch, private_names.LOSS_MODULE) or ()

    @functools.wraps(original)
    def __call__(*args: Any, **kwargs: Any) -> Any:  # `self` is args[0]: a parameter of its own costs at every call
        if in_dynamo():
            return original(*args, **kwargs)
        try:
            watch = calling.watch
            if watch is False or compiling._is_compiling_flag:
                return original(*args, **kwargs)
            if watch is not None:
                output = original(*args, **kwargs)
                watch.returned(args[0], output, args, kwargs)
                return output
            if tracing() is not None or not args:  # without a module it is the program's error
                return original(*args, **kwargs)
            fast_path, self = skipping.fast_path, args[0]
            if fast_path is not None and fast_path.on and (fast_path.model() is self or fast_path.may_be_aside(self)):
                counts, progress, call = fast_path.losses, fast_path.progress, original
                dropouts = progress.dropouts
            else:
                fast_path, recording = None, recorder()
                if recording.writer.off:
                    return original(*args, **kwargs)
                watch = recording.forwards.watch_for(self, args, kwargs)
                counts, progress = recording.losses, recording.progress
                dropouts = progress.dropouts
                call = recording.program.fused_dropouts.watched(original, self)
            losses, statistics = counts.count, progress.statistics
            start = clock()
            try:  # Nothing is called between this line and the next: an OS signal handler may raise in any call.
                calling.root, calling.watch = self, watch or False
                output = call(*args, **kwargs)
            finally:
                calling.root = calling.watch = None
            if watch:
                watch.ends(self, output)
            if fast_path is not None and fast_path.forward(args, kwargs, output):
                return output
            forwards = recorder().forwards
            if not forwards.taken_as_loss(loss_kind, self, output):
                within = (progress.dropouts - dropouts, progress.statistics - statistics, counts.count - losses)
                forwards.returned(self, args[1:], kwargs, output, start, *within)
            return output
        except BaseException as error:
            leave_no_frame(error)
            raise

    _stand_for(owner, original, unseen_by_warnings(__call__))


def _stand_for(owner: Any, original: Any, wrapper: Any) -> None:
    """Under each name of the class: torch's `__call__` has another one, by which pickle looks for it."""
    for name in [name for name, value in vars(owner).items() if value is original]:
        setattr(owner, name, wrapper)


def _functions(torch: Any) -> None:
    """Functional losses (their values in evaluation passes) and dropouts (whether they really drop)."""
    functional = torch.nn.functional
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)
    for name in LOSSES:
        original = getattr(functional, name, None)
        if isinstance(original, types.FunctionType):
            setattr(functional, name, _like(original, _loss_wrapper(original, in_dynamo, compiling)))
    for name in DROPOUTS:
        original = getattr(functional, name, None)
        if isinstance(original, types.FunctionType):
            setattr(functional, name, _like(original, _dropout_wrapper(original, in_dynamo, compiling)))
    modes.install(torch, recorder, _like, compiling)


def _loss_wrapper(original: Callable[..., Any], in_dynamo: Callable[[], bool], compiling: Any) -> Callable[..., Any]:
    # All in the closure, for its globals are those of torch's function: see _like.
    calling, find_recorder, name, hide = local, recorder, original.__name__, leave_no_frame

    def loss(*args: Any, **kwargs: Any) -> Any:
        if in_dynamo() or compiling._is_compiling_flag:
            return original(*args, **kwargs)
        try:
            value = original(*args, **kwargs)
            recording = find_recorder()
            losses = recording.losses
            losses.count += 1
            if losses.count >= losses.next:
                recording.forwards.loss_called(name, args, kwargs, value, calling.root is None)
            return value
        except BaseException as error:
            hide(error)
            raise

    return loss


def _dropout_wrapper(original: Callable[..., Any], in_dynamo: Callable[[], bool], compiling: Any) -> Callable[..., Any]:
    find_recorder, hide = recorder, leave_no_frame  # in the closure: see _like

    def dropout(input, p=0.5, training=True, inplace=False):  # type: ignore[no-untyped-def]
        if training is True and p and not in_dynamo() and not compiling._is_compiling_flag:
            find_recorder().progress.dropouts += 1
        try:
            return original(input, p, training, inplace)
        except BaseException as error:
            hide(error)
            raise

    return dropout


def _like(original: Any, wrapper: Any) -> Any:
    """`wrapper` under the name, source and globals of `original`, which TorchScript compiles in its place."""
    takes_the_same = wrapper.__code__.co_argcount == original.__code__.co_argcount
    same_globals = types.FunctionType(
        unseen_by_warnings(wrapper).__code__,
        original.__globals__,
        original.__name__,
        original.__defaults__ if takes_the_same else wrapper.__defaults__,  # they differ between dropouts
        wrapper.__closure__,
    )
    same_globals.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
    return functools.wraps(original)(same_globals)


def _graph_task(torch: Any) -> Callable[[], int]:
    """Asks for the number of the backward that this thread works for, -1 for none."""
    found = private_names.find(torch, private_names.GRAPH_TASK)
    return found or (lambda: 0 if any(one.progress.in_backward for one in recorders()) else -1)


def _backward(torch: Any) -> None:
    """One place sees `Tensor.backward`, Lightning, Accelerate and DDP. Reentrant checkpointing nests calls of it."""
    original, calling, current_graph_task = torch.autograd.backward, local, _graph_task(torch)
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if in_dynamo() or compiling._is_compiling_flag or calling.backwards_unseen or current_graph_task() != -1:
            return original(*args, **kwargs)
        tensors = args[0] if args else kwargs.get("tensors")
        fast_path, progress, watch = this_thread.fast_path, None, calling.watch
        try:
            calling.backwards_unseen, calling.watch = True, False  # what is called within recomputes activations
            retains_graph = kwargs.get("retain_graph", args[2] if len(args) > 2 else None) is True
            if fast_path is not None and fast_path.on and fast_path.backward_begins(tensors, retains_graph):
                progress = fast_path.progress
            else:
                fast_path, recording = None, _current[0].for_backward()
                progress = recording.progress
                recording.backwards.begins(tensors, retains_graph)
                calling.watch = recording.program.calls.recomputation()
            if retains_graph:
                calling.kept = graphs.latest_number(tensors)
            result = original(*args, **kwargs)
            if fast_path is None or not fast_path.backward_ends():
                recorder().backwards.ends(tensors)
            return result
        except BaseException as error:
            leave_no_frame(error)
            raise
        finally:
            calling.backwards_unseen, calling.watch = False, watch
            if progress is not None:
                progress.in_backward = False

    torch.autograd.backward = unseen_by_warnings(backward)
    functional_gradients.install(torch, recorder)


def _optimizers(torch: Any) -> None:
    calling, current_graph_task = local, _graph_task(torch)
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not in_dynamo() and not compiling._is_compiling_flag:
            fast_path = this_thread.fast_path
            if fast_path is not None and fast_path.on and fast_path.step_begins(optimizer):
                return
            recording = _current[0].for_step(current_graph_task)
            if recording.progress.in_backward:
                recording.steps.inside_backward(optimizer)
            else:
                recording.steps.begins(optimizer)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not in_dynamo() and not compiling._is_compiling_flag:
            calling.optimizer_stepped = True
            fast_path = this_thread.fast_path
            if fast_path is not None and fast_path.on and fast_path.step_ends(optimizer):
                return
            _current[0].for_step(current_graph_task).steps.ends(optimizer)

    home = sys.modules["torch.optim.optimizer"]  # `torch.optim` itself deletes this name
    compiler.hide_step_hook(torch, home, before)
    home.register_optimizer_step_pre_hook(before)
    home.register_optimizer_step_post_hook(after)


def _changes(torch: Any) -> None:
    """Gradients that are clipped, losses that are scaled."""
    gradient_changes.install(torch, recorder, local)


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
