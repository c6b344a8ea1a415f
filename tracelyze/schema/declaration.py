"""How a table of the run directory is declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

ColumnType = Literal["bool", "int8", "int16", "int32", "int64", "float64", "string"]


@dataclass(frozen=True)
class Column:
    """One column: its name, Arrow type, unit and meaning. `codes` names the values of an enumeration."""

    name: str
    type: ColumnType
    unit: str
    meaning: str
    codes: Mapping[int, str] | Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """One table of the run directory."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column called `name`; KeyError if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise KeyError(f"{self.name} has no column {name!r}") from None

    @cached_property
    def _by_name(self) -> Mapping[str, Column]:
        return {column.name: column for column in reversed(self.columns)}
