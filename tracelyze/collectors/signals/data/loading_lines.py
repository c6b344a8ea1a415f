"""In which line of the script batches are made."""

from __future__ import annotations

import json
from typing import Any

from tracelyze.collectors.internals.private_names import LOADER_ITERATOR
from tracelyze.collectors.program import fetches
from tracelyze.collectors.program.call_sites import shown_path, source_line
from tracelyze.collectors.program.loading import lone_rows, timed_lines
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

PASSES = 3  # of a loader that are timed
MAX_LOADERS = 20


class LoadingLines(Signal):
    """A few batches of each worker, or of the training process itself, in the first passes over a loader."""

    name = "loading_lines"
    needs = (LOADER_ITERATOR,)
    columns = ()  # events of kind loading
    about = "The function and line of the script in which batches are made, of a few batches that are timed (events)."
    cost = "at most 15 ms a pass, in the first three passes over a loader"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._found: dict[int, list[timed_lines.TimedLines | fetches.Page]] = {}  # by loader
        self._told: set[int] = set()  # loaders of which a first answer was recorded: a program may be killed

    def fetching(self, loader: Any, iterator: Any, page: fetches.Page | None) -> None:
        number = self.progress.iterated
        if number is None or (number not in self._found and len(self._found) >= MAX_LOADERS):
            return
        found = self._found.setdefault(number, [])
        if len(found) >= PASSES:
            return
        if page is not None:
            found.append(page)
        elif not loader.num_workers and hasattr(iterator, "_dataset_fetcher"):
            timed = timed_lines.TimedLines(iterator._dataset_fetcher.collate_fn)
            fetches.timed[iterator._dataset_fetcher] = timed
            found.append(timed)

    def every_second(self, row: dict[str, Any]) -> None:
        for number, found in list(self._found.items()):
            if number not in self._told:
                self._tell(number, list(found))

    def finished(self) -> None:
        for number, found in self._found.items():
            self._tell(number, found)
        self._found = {}

    def _tell(self, number: int, found: list[timed_lines.TimedLines | fetches.Page]) -> None:
        """The function in which most of all the time went, and its line of the longest of the batches; fields with one
        row for all samples, and whose it is."""
        self._tell_lone_rows(number, found)
        answers = [of for one in found for of in (one.told() if isinstance(one, fetches.Page) else [one.found()])]
        told = [one for one in answers if one is not None]
        functions: dict[tuple[str, str], int] = {}
        for one in told:
            functions[one.file, one.function] = functions.get((one.file, one.function), 0) + one.there
        if not functions:
            return
        self._told.add(number)
        most = max(functions, key=functions.__getitem__)
        longest = max((one for one in told if (one.file, one.function) == most), key=lambda one: one.there)
        self.context.record_event(
            "loading",
            longest.function,
            f"{functions[most]} of {sum(one.whole for one in told)}",
            value=number,
            file=shown_path(longest.file),
            line=longest.line,
            source=source_line(longest.file, longest.line),
        )

    def _tell_lone_rows(self, number: int, found: list[timed_lines.TimedLines | fetches.Page]) -> None:
        parts: list[lone_rows.Found] = []
        for one in found:
            if isinstance(one, fetches.Page):
                parts += one.lone_rows()
            elif one.lone_rows is not None:
                parts.append(one.lone_rows.found)
        for field, counts in lone_rows.together(parts).items():
            self.context.record_event("lone-row", field, json.dumps(counts), value=number)
