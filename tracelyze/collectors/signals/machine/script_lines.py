"""Lines of the training loop that clear gradients, lines of the model that take a softmax, and lines that make modules.

Nothing is wrapped for the former, so they cost nothing and break no graph; but that a line stands there is all that is
known: not that it ran. The code is read once, on a thread of ours, when the line of the backward is known.
"""

from __future__ import annotations

import itertools
import sys
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.program.call_sites import is_library, script_frames
from tracelyze.collectors.program.lines import (
    construction,
    moved_biases,
    named_calls,
    sample_lines,
    script_text,
    slices,
    slopes,
)
from tracelyze.collectors.program.lines.assigned import averages, dropped, ignored, rebinding, replaced_parts, unread
from tracelyze.collectors.program.lines.computed import arrays, rounding
from tracelyze.collectors.program.lines.growing import kept
from tracelyze.collectors.program.lines.loops import epoch_loops, extents
from tracelyze.collectors.program.lines.named import best_models, equalities, reward_calls, roles, singular
from tracelyze.collectors.program.lines.settings import given_masks, named_arguments, regions, templates
from tracelyze.collectors.program.lines.settings.constants import Constants
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

MAX_SITES = 40
MAX_PARTS = 20_000  # modules of a model that are gone through
MAX_ROWS = 2000
MAX_LISTED = 100  # modules of a list
LITTLE = 0.9
ATTENDING = ("Transformer", "MultiheadAttention")  # how torch's classes begin that are given a mask when called
OWN = ("_modules", "_parameters", "_buffers")  # where torch keeps what is registered


class ScriptLines(Signal):
    name = "script_lines"
    columns = (
        *(f"modules.{name}" for name in ("model", "module", "kind", "made_at")),
        *(f"sites.{name}" for name in ("name", "own_name", "value")),
    )
    about = (
        "Lines that make modules; lines of the script that clear gradients, detach, freeze, draw, split, and the like; "
        "lines that give a setting its value."
    )
    cost = "50 ms for a script of 150 lines, on a thread of ours; 3 us a module that is made, and at the first step"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._done: set[int] = set()
        self._models: set[int] = set()
        self._rows = 0  # of the table modules
        self._epochs = False  # whether the loop over epochs is known
        self._kinds: list[type] = []  # classes of modules of the script's own, whose functions are still to be read
        self._known_kinds: set[int] = set()  # by identity
        self._attending: set[str] = set()  # attributes of the script's own modules that hold torch's attention
        self._texts: dict[str, script_text.Text] = {}  # by file
        self._files: set[str] = set()  # in which the models' classes stand
        self._named: dict[
            int, tuple[CodeType, bool]
        ] = {}  # functions that were read for names; whether they split data
        self._divides: dict[int, CodeType] = {}  # and those that were for divisions, logarithms and roots
        self._state = 0, False  # lines of the script that were known at the last look, and what was looked for
        self._read: dict[int, CodeType] = {}  # functions, by identity: hashing one hashes its constants
        self._constants = Constants(self.program.sites)
        self._callers: dict[int, CodeType] = {}  # functions of the script that are under way at the first steps

    def first_step(self, tracked: Tracked) -> None:
        running = construction.under_way()
        frames: list[FrameType] = []
        for frame in script_frames(sys._getframe(1)):
            self._callers[id(frame.f_code)] = frame.f_code
            frames.append(frame)
            self._note_epochs(frames)
        for number, model in self.program.calls.modules():
            if number not in self._models:
                self._models.add(number)
                self._modules_of(number, model, running)

    def _note_epochs(self, frames: list[FrameType]) -> None:
        """How many epochs the loop around the first step is written for, and how many batches each has without a
        loader; the innermost function that says so, the last one of `frames`."""
        frame = frames[-1]
        loop = None if self._epochs else epoch_loops.around(frame)
        if loop is not None:
            self._epochs = True
            self.program.sites.at("epochs", frame.f_code, loop.line)
            self.context.record_event("epochs-planned", frame.f_code.co_name, value=loop.planned)
            batches = epoch_loops.batches(frames, loop) if self.progress.loader is None else None
            if batches is not None:
                self.context.record_event("batches-planned", frame.f_code.co_name, value=batches)

    def _modules_of(self, number: int, model: Any, running: set[tuple[int, int]]) -> None:
        """A module is left out where the one that holds it was made in the same line."""
        sites: dict[str, int | None] = {}
        try:
            parts = list(itertools.islice(model.named_modules(), MAX_PARTS))
        except Exception as error:  # a model that hides its modules
            if raised_by_a_signal_handler(error):
                raise
            return
        known = {id(part) for _, part in parts}
        self._attending |= _attending(dict(parts))
        for name, part in parts:
            if self._rows >= MAX_ROWS:
                return
            for layer in _unregistered(part, known):
                construction.modules.site_of(layer, "unregistered", self.program.sites, running)
            kind = type(part)
            if id(kind) not in self._known_kinds:
                self._known_kinds.add(id(kind))
                code = getattr(getattr(kind, "forward", None), "__code__", None)
                if isinstance(code, CodeType) and not is_library(code.co_filename):
                    self._kinds.append(kind)
                    self._files.add(code.co_filename)
            if "BatchNorm" in kind.__name__ and _keeps_little(vars(part).get("momentum")):
                self.program.sites.wanted.add("momentum")
            holder = sites.get(name.rpartition(".")[0]) if name else None
            site = construction.modules.site_of(part, "module", self.program.sites, running)
            sites[name] = holder if site is None else site
            if site is not None and site != holder:
                self._rows += 1
                row = {"model": number, "module": name, "kind": kind.__name__, "made_at": site}
                self.context.emit("modules", row)

    def finished(self) -> None:
        self._state = 0, False  # Functions that were defined since the last look are read, too.
        self._read_forwards()
        self._read_files()
        self._constants.read()

    def _read_files(self) -> None:
        """Lines that do something by a name, in the files in which the training stands: each function once.

        The program may end while the thread is in here, and its last reading then begins beside this one: `_texts` is
        replaced and never changed in place.
        """
        sites = self.program.sites
        codes, divisions = [*sites.codes(), *self._callers.values()], "singular" in sites.wanted
        if (len(codes), divisions) == self._state:
            return
        self._state = len(codes), divisions
        files = {code.co_filename for code in codes}.union(self._files)
        known = self._texts  # A script may train before it defines the functions of its second training.
        texts = self._texts = {**known, **{file: script_text.of_file(file) for file in files}}
        old = {id(code) for text in known.values() for code in text.readers}
        new = [code for text in texts.values() for code in text.readers if id(code) not in old]
        for code in new:
            for line in kept.kept(code)[:MAX_SITES]:
                sites.at("kept", code, line)
        datasets = frozenset[str]().union(*(text.datasets for text in texts.values()))
        functions = list(itertools.chain(codes, *(text.functions for text in texts.values())))
        rewarding = set[str]().union(*(map(named_arguments.reward_functions, functions)))
        if not any(roles.REWARDS.search(code.co_name) for code in functions):
            rewarding = rewarding.union(*map(reward_calls.functions, functions))
        for code in functions:
            if id(code) not in self._named:
                self._named[id(code)] = code, False
                self._named[id(code)] = code, self._note_named(code, datasets, rewarding)
            if divisions and id(code) not in self._divides:
                self._divides[id(code)] = code
                for line in singular.singular(code)[:MAX_SITES]:
                    sites.at("singular", code, line)
                for line in arrays.singular(code)[:MAX_SITES]:
                    sites.at("singular-array", code, line)
        splitting = [one for one, splits in list(self._named.values()) if splits][:MAX_SITES]
        for code, one in itertools.product(functions, splitting):
            calls = named_calls.by_itself(code, one.co_name) if code.co_filename == one.co_filename else []
            for line in calls[:MAX_SITES]:
                sites.at("split-call", code, line)

    def _note_named(self, code: CodeType, datasets: frozenset[str], rewarding: set[str]) -> bool:
        """Lines of a function that do something by a name; whether it splits data."""
        sites = self.program.sites
        if roles.REWARDS.search(code.co_name) or code.co_name in rewarding:
            sites.at("reward", code, code.co_firstlineno)
            for line in rounding.compares(code)[:MAX_SITES]:
                sites.at("reward-compared", code, line)
            for line in rounding.rounds(code)[:MAX_SITES]:
                sites.at("reward-rounded", code, line)
            for line in rounding.searches(code)[:MAX_SITES]:
                sites.at("reward-searched", code, line)
        known = roles.lines(code, datasets)[:MAX_SITES]
        for role, line in known:
            sites.at(role, code, line)
        for role, line in [*best_models.bests(code), *best_models.waits(code), *dropped.lines(code)][:MAX_SITES]:
            sites.at(role, code, line)
        for role, line in unread.lines(code)[:MAX_SITES]:
            sites.at(role, code, line)
        for role, read in (
            ("ends", equalities.ends),
            ("average", averages.mixing),
            ("average-made", averages.making),
            ("average-update", averages.updating),
            ("setting", named_arguments.lines),
            ("mask-given", given_masks.lines),
            ("labels-given", given_masks.labels),
            ("text-given", given_masks.texts),
            ("shift", slices.shifts),
            ("length", slices.lengths),
            ("slope", slopes.without_graph),
            ("balance", moved_biases.moves),
            ("left-alone", rebinding.left_alone),
            ("part-text", replaced_parts.lines),
            ("autocast-text", regions.lines),
            ("array-cast", arrays.casts),
            ("ignored", ignored.lines),
            ("template-end", templates.ends),
            ("optimizers-returned", named_calls.optimizers_returned),
        ):
            for line in read(code)[:MAX_SITES]:
                sites.at(role, code, line)
        return code.co_name.isidentifier() and any(role == "split" for role, _ in known)

    def _read_forwards(self) -> None:
        kinds, self._kinds = self._kinds, []
        codes = {id(code): code for kind in kinds for code in named_calls.functions_around(kind)}
        for code in codes.values():
            if id(code) not in self._read:
                self._read[id(code)] = code
                for line in named_calls.softmaxes_of_attention(code)[:MAX_SITES]:
                    self.program.sites.add("attention", code.co_filename, line, code.co_name)
                for line in named_calls.softmaxes(code)[:MAX_SITES]:
                    self.program.sites.add("softmax", code.co_filename, line, code.co_name)
                for line in named_calls.of_attributes(code, self._attending)[:MAX_SITES]:
                    self.program.sites.add("attending-layer", code.co_filename, line, code.co_name)

    def every_second(self, row: dict[str, Any]) -> None:
        self._read_forwards()
        self._read_files()
        self._constants.read()
        site = self.progress.backward_site
        if site is None or site in self._done or len(self._done) >= MAX_SITES:
            return
        self._done.add(site)
        sites = self.program.sites
        place = sites.code(site)
        if place is not None:
            code, line = place
            loop = extents.loop_around(code, line)
            if loop is not None:
                sites.at("loop", code, loop)
            text = self._texts.get(code.co_filename) or script_text.of_file(code.co_filename)  # Its line is newer.
            for maker in script_text.batches_of(code, text.functions):
                sites.at("batches", maker, named_calls.first_statement(maker) or maker.co_firstlineno)
                for handed in named_calls.yields(maker)[:MAX_SITES]:
                    sites.at("yields", maker, handed)
                sample_lines.of_batches(maker, text.functions, sites)
            for line in named_calls.methods(code, "zero_grad")[:MAX_SITES]:
                self.program.sites.add("zero_grad", code.co_filename, line, code.co_name)
            for line in named_calls.softmaxes(code)[:MAX_SITES]:
                self.program.sites.add("softmax", code.co_filename, line, code.co_name)


def _keeps_little(momentum: Any) -> bool:
    """Whether running averages with this weight of the newest batch keep next to nothing of those before."""
    return type(momentum) is float and momentum >= LITTLE


def _attending(parts: dict[str, Any]) -> set[str]:
    """The attributes by which modules that torch does not define hold its layers of attention, also in a list."""
    found: set[str] = set()
    for name, part in parts.items():
        kind, path = type(part), name.split(".")
        if not kind.__module__.startswith("torch.nn.") or not kind.__name__.startswith(ATTENDING):
            continue
        while path[-1:] and path[-1].isdigit():
            path.pop()
        holder = parts.get(".".join(path[:-1]))
        if path and path[-1] and holder is not None and not type(holder).__module__.startswith("torch."):
            found.add(path[-1])
    return found


def _unregistered(module: Any, known: set[int]) -> list[Any]:
    """Modules in lists and dictionaries of a module that are no part of the model. `known`: ids of its parts."""
    found: list[Any] = []
    for name, value in list(vars(module).items()):
        if name in OWN or type(value) not in (list, tuple, dict) or not value:
            continue
        held = list(value.values() if type(value) is dict else value)[:MAX_LISTED]
        found += [one for one in held if hasattr(type(one), "named_parameters") and id(one) not in known]
    return found
