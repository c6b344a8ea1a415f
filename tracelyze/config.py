"""What a project asks of its diagnoses: `[tool.tracelyze]` of pyproject.toml, or tracelyze.toml.

    [tool.tracelyze]                              # in tracelyze.toml without this line
    select = ["missing-zero-grad", "crash"]       # only these rules
    ignore = ["class-imbalance"]                  # all but these
    docs_url = "https://intranet.example/tracelyze"  # where reports link to: its page rules/<id> for each rule

    [tool.tracelyze.thresholds.memory-leak]       # in tracelyze.toml: [thresholds.memory-leak]
    absolute = 64                                 # MiB

The nearest file from the current directory upwards counts; of two in one directory, tracelyze.toml.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracelyze import reading
from tracelyze.catalogue.entries import check_ids
from tracelyze.errors import Cause, InputError
from tracelyze.suggestions import unknown

OWN_FILE = "tracelyze.toml"
PROJECT_FILE = "pyproject.toml"
KEYS = ("select", "ignore", "thresholds", "docs_url")

Rules = Mapping[str, Collection[str]]
"""The names of a rule's thresholds, by its id: see :class:`tracelyze.catalogue.entries.ThresholdNames`."""


@dataclass(frozen=True)
class Settings:
    """`thresholds[rule][name]` overrides a rule's number. `file` is where the settings came from, None for defaults."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    file: Path | None = None
    docs_url: str = ""


def load(file: Path | None, start: Path, rules: Rules) -> Settings:
    """The settings in `file`, or in the nearest configuration from the folder `start` upwards, or the defaults.

    InputError, naming file, key and the nearest valid name, for anything that is not understood.
    """
    if file is None:
        found = _nearest(start)
        return Settings() if found is None else _settings(*found, rules)
    table = _table(file)
    if table is None:
        raise InputError(
            Cause.NO_SETTINGS, f"{file}: holds no [tool.tracelyze] table; add one, or give another file to --config"
        )
    return _settings(file, table, rules)


def _nearest(start: Path) -> tuple[Path, Mapping[str, Any]] | None:
    start = start.resolve()
    for folder in (start, *start.parents):
        for name in (OWN_FILE, PROJECT_FILE):
            file = folder / name
            if file.is_file() and (table := _table(file)) is not None:
                return file, table
    return None


def _table(file: Path) -> Mapping[str, Any] | None:
    """tracelyze's part of a TOML file; None for a pyproject.toml that does not speak of it."""
    import tomllib

    try:
        data = tomllib.loads(reading.read_text(file))
    except OSError as error:
        raise InputError(Cause.of_reading(error), f"{file}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(Cause.NOT_TOML, f"{file}: not valid TOML ({str(error)[:200]})") from None
    if file.name != PROJECT_FILE and "tool" not in data:
        return data
    tools = data.get("tool")
    table = tools.get("tracelyze") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise InputError(Cause.WRONG_SETTING, f"{file}: tool.tracelyze must be a table: write [tool.tracelyze]")
    return table


def _settings(file: Path, table: Mapping[str, Any], rules: Rules) -> Settings:
    for key in table:
        if key not in KEYS:
            raise unknown(f"{file}: no such setting", key, KEYS)
    select, ignore = (_identifiers(file, table, key, rules) for key in ("select", "ignore"))
    docs_url = table.get("docs_url", "")
    if not isinstance(docs_url, str) or not re.fullmatch(r"(https?://[^\s\"'<>]+)?", docs_url):
        raise InputError(
            Cause.WRONG_SETTING,
            f'{file}: docs_url must be an address, e.g. docs_url = "https://intranet.example/tracelyze"',
        )
    return Settings(select, ignore, _thresholds(file, table.get("thresholds", {}), rules), file, docs_url)


def _identifiers(file: Path, table: Mapping[str, Any], key: str, rules: Rules) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(
            Cause.WRONG_SETTING, f'{file}: {key} must be a list of rule ids, e.g. {key} = ["missing-zero-grad"]'
        )
    check_ids(value, rules, f"{file}: {key}")
    return tuple(value)


def _thresholds(file: Path, value: Any, rules: Rules) -> dict[str, dict[str, float]]:
    if not isinstance(value, dict):
        raise InputError(
            Cause.WRONG_SETTING,
            f"{file}: thresholds must hold one table a rule, e.g. [tool.tracelyze.thresholds.memory-leak]",
        )
    check_ids(value, rules, f"{file}: thresholds")
    chosen: dict[str, dict[str, float]] = {}
    for rule, numbers in value.items():
        where = f"{file}: thresholds.{rule}"
        if not isinstance(numbers, dict):
            raise InputError(Cause.WRONG_SETTING, f"{where} must be a table of numbers by name")
        for name, number in numbers.items():
            if name not in rules[rule]:
                raise unknown(f"{where}: no such threshold", name, rules[rule])
            if reading.finite(number) is None:
                raise InputError(Cause.WRONG_SETTING, f"{where}.{name}: {str(number)[:80]!r} is not a number")
        chosen[rule] = {name: float(number) for name, number in numbers.items()}
    return chosen
