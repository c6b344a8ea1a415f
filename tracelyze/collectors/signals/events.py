"""The events of a training: a signal has a method of the name and the parameters for each that it listens to.

The steps of a loop that has settled are skipped (recording/fast_path): no signal is called. Where such a step turns out
to be unlike those before it, the events that were skipped of it are dispatched after all, late. What the program gave
to a call or a backward is gone by then; the loss of that backward is `program.backwards.running.value`, a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tracelyze.collectors.program.call import Call
    from tracelyze.collectors.program.fetches import Page
    from tracelyze.collectors.program.optimizers import Tracked


class Events(Protocol):
    """Every event, with what is given to those that listen to it. No signal has all of them."""

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        """An outermost module call returned (program/call.py), with what it was given; () and {} for one that was
        skipped (see above): `call.given` refers to what is left of it."""

    def settled(self, call: Call, trained: bool) -> None:
        """It is known whether a backward ran through that call's output; in order."""

    def passed_over(self, calls: list[Call]) -> None:
        """Calls without autograd, in a row, of a step that was skipped: each is like one that was settled before."""

    def loss(self, value: Any) -> None:
        """A loss function returned a scalar tensor."""

    def loss_call(self, function: str, args: Any, kwargs: Any, value: Any) -> None:
        """A loss function of torch.nn.functional returned value."""

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        """torch.autograd.backward was called with these tensors: () where it was called with something else, or was
        skipped (see above)."""

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        """And returned."""

    def clips_values(self, parameters: Any) -> None:
        """Their gradients are about to be clipped, by value or another norm than L2."""

    def clip(self, max_norm: Any, total_norm: Any) -> None:
        """Gradients were clipped; total_norm is the tensor that the clip returned, or None."""

    def scale(self, original: Any, scaled: Any) -> None:
        """GradScaler.scale returned `scaled` for `original`."""

    def unscale(self, scaler: Any, optimizer: Any) -> None:
        """GradScaler.unscale_ returned."""

    def scaler_step(self, scaler: Any) -> None:
        """GradScaler.step was called."""

    def loader_made(self, loader: Any) -> None:
        """A DataLoader was constructed."""

    def iterate(self, loader: Any, iterator: Any) -> None:
        """iter(DataLoader) returned an iterator."""

    def fetching(self, loader: Any, iterator: Any, page: Page | None) -> None:
        """After that: where its workers leave their notes (program/fetches.py), None without."""

    def turned(self, iterator: Any, seconds: float) -> None:
        """Making it, or finding its end, took that long: workers start, workers stop."""

    def waiting(self, iterator: Any) -> None:
        """The script asks it for a batch."""

    def batch(self, iterator: Any, seconds: float, batch: Any) -> None:
        """It handed out a batch after `seconds` of waiting."""

    def exhausted(self, iterator: Any) -> None:
        """It had no more."""

    def before_first_step(self, tracked: Tracked) -> None:
        """An optimizer's step was called for the first time; before_step follows."""

    def before_step(self, tracked: Tracked) -> None:
        """An optimizer's step was called."""

    def first_step(self, tracked: Tracked) -> None:
        """And returned, for the first time; after_step follows."""

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        """And returned (or GradScaler skipped it): fill the row."""

    def opened(self) -> None:
        """The process trains: it gets a folder, and its threads are about to start."""

    def every_second(self, row: dict[str, Any]) -> None:
        """On a thread of ours: fill a row of the table samples, or write rows of your own."""

    def logged(self, unnamed: tuple[Any, ...], values: Mapping[str, Any], batch: Any, phase: Any, step: Any) -> None:
        """`tracelyze.log` was called, on any thread."""

    def scheduled(self, scheduler: Any, inner: bool, given: Any) -> None:
        """A learning-rate scheduler stepped, given this; inner: another scheduler made it."""

    def seeded(self, name: str, is_seed: bool) -> None:
        """A global generator of random numbers ("python", "numpy") was seeded; not is_seed: its state was set, which
        mostly is put back."""

    def filled(self, tensor: Any) -> None:
        """A function of torch.nn.init filled it with random numbers."""

    def state_taken(self, module: Any, state: Any) -> None:
        """A module handed out its weights by name."""

    def state_loading(self, module: Any, given: Any) -> None:
        """It is about to take in those of `given`."""

    def state_loaded(self, module: Any, given: Any, result: Any) -> None:
        """And has: what was missing and unexpected."""

    def state_restored(self, role: str, owner: Any) -> None:
        """An optimizer, scheduler or scaler took in a state: its load_state_dict returned."""

    def vectors_taken(self, module: Any) -> None:
        """An embedding was made of vectors that it was given: from_pretrained returned."""

    def pretrained(self, module: Any, missing: set[str]) -> None:
        """from_pretrained of a library has set the weights of a model, but for these names."""

    def file_saved(self, content: Any, name: str) -> None:
        """torch.save has written an object into a file of this name."""

    def file_loaded(self, content: Any, name: str) -> None:
        """torch.load has read one."""

    def reported(self, logger: str, values: Mapping[str, Any]) -> None:
        """The program handed numbers by name to a logger (hooks/loggers.py)."""

    def evaluation_begins(self, purpose: str, with_latest: bool) -> None:
        """A framework's callback says that an evaluation begins: validation, test, ...; with_latest: the call that has
        just returned is part of it."""

    def evaluation_ends(self) -> None:
        """And that it is over."""

    def checkpointed_in_vain(self, function: Any) -> None:
        """Reentrant checkpointing of this function was given no tensor that needs a gradient."""

    def finished(self) -> None:
        """The program ends."""


EVENTS = tuple([name for name in vars(Events) if not name.startswith("_")])
STEP_EVENTS = ("forward", "settled", "before_backward", "after_backward", "before_step", "after_step")
