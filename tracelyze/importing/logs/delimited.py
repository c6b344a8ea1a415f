"""Logs in CSV: with a header, separated by commas, semicolons or tabs. Lightning's CSVLogger writes such files."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from tracelyze.errors import Cause, InputError
from tracelyze.importing.reading import Numbers, numbers, text_of
from tracelyze.importing.run_builder import Log

LIGHTNING = "metrics.csv"
_VERSION = re.compile(r"version_(\d+)")


def looks_so(head: str) -> bool:
    """Whether the beginning of a file is a header and a row of as many fields, more than one."""
    lines = head.split("\n")
    separator = max(",;\t", key=lines[0].count)
    fields = lines[0].count(separator)
    return fields > 0 and (len(lines) < 2 or not lines[1].strip() or lines[1].count(separator) == fields)


def find(folder: Path) -> Path | None:
    """The metrics.csv of a folder that Lightning logged to: of a version, or of the last of its versions."""
    if (folder / LIGHTNING).is_file():
        return folder / LIGHTNING
    for above in (folder, *sorted(folder.glob("*_logs"))):
        versions = [int(match[1]) for path in above.glob("version_*") if (match := _VERSION.fullmatch(path.name))]
        files = [above / f"version_{number}" / LIGHTNING for number in sorted(versions, reverse=True)]
        if found := next((file for file in files if file.is_file()), None):
            return found
    return None


def read(path: Path) -> Log:
    """The rows of the log. InputError where there is no header, or a value that must be a number is none."""
    file = (find(path) or path) if path.is_dir() else path
    text = text_of(file)
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    if delimiter not in header:
        raise InputError(
            Cause.OTHER_CONTENT,
            f"{file}: not a log that tracelyze reads: no header with step and loss in its first line",
        )
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restkey="", skipinitialspace=True)
    try:
        rows = [numbers(file, f"line {reader.line_num}", record) for record in reader]
    except csv.Error as error:
        raise InputError(Cause.DAMAGED_LOG, f"{file}: line {reader.line_num}: {error}") from None
    return Log("csv", file, *_summed(file, rows))


def _summed(file: Path, rows: list[Numbers]) -> tuple[list[Numbers], dict[str, str], tuple[str, ...]]:
    """Ultralytics writes the weighted parts of its loss, and no loss: what it minimises is their sum."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not {"train/box_loss", "val/box_loss"} <= set(names):
        return rows, {}, ()
    for phase in ("train", "val"):
        parts = [name for name in names if re.fullmatch(rf"{phase}/\w+_loss", name)]
        for row in rows:
            values = [value for name in parts if (value := row.pop(name, None)) is not None]
            row[f"{phase}/loss"] = sum(values) if len(values) == len(parts) else None
    return rows, {"program": "Ultralytics"}, (f"{file}: losses are the sums of Ultralytics' weighted parts",)
