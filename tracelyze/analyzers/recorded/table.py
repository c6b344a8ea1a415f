"""A table of a process: columns as numpy arrays, read from where they are when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tracelyze import schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_KEPT = 2_000  # rows whose values are kept as Python objects: some MiB of a table with many columns


class Columns(Protocol):
    """Where a table's columns come from: files on disk, or arrays in memory."""

    rows: int

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        """Values and a mask of the known ones (numbers), or a list with None (text)."""
        ...


class Table:
    """One table of one process. Numbers come as float64 with NaN where nothing was measured; see :meth:`known`."""

    def __init__(self, spec: schema.Table, source: Columns, rows: Mask | None = None) -> None:
        self.spec = spec
        self._source = source
        self._rows = rows
        self._cache: dict[str, tuple[Floats, Mask] | list[str | None]] = {}
        self._records: list[dict[str, Any]] | None = None
        self._has: dict[str, bool] = {}

    def __len__(self) -> int:
        return self._source.rows if self._rows is None else int(self._rows.sum())

    def __getitem__(self, name: str) -> Floats:
        """Column `name` as float64, shape [rows]. NaN means either "not measured" or a NaN of the training."""
        return self._numbers(name)[0]

    def known(self, name: str) -> Mask:
        """Where column `name` was measured (a measured NaN counts), shape [rows]."""
        return self._numbers(name)[1]

    def has(self, name: str) -> bool:
        """Whether column `name` was measured at least once."""
        found = self._has.get(name)  # Every rule asks for the columns that it needs.
        if found is None:
            is_text = self.spec.column(name).type == "string"  # KeyError for a column that the schema does not have
            if self._source.rows == 0:
                found = False
            else:
                found = any(v is not None for v in self.text(name)) if is_text else bool(self.known(name).any())
            self._has[name] = found
        return found

    def text(self, name: str) -> list[str | None]:
        """A text column."""
        values = self._load(name)
        if not isinstance(values, list):
            raise TypeError(f"{self.spec.name}.{name} holds numbers, not text")
        return values

    @property
    def source(self) -> Columns:
        """Where the columns come from."""
        return self._source

    def matches(self, name: str, text: str) -> Mask:
        """Where a text column holds exactly `text`, shape [rows]. Cheap for long tables, other than :meth:`text`."""
        find = getattr(self._source, "matches", None)
        if find is None or name in self._cache:
            return np.array([value == text for value in self.text(name)], dtype=bool)
        found: Mask = find(name, text)
        return found if self._rows is None else found[self._rows]

    def where(self, rows: Mask) -> Table:
        """The rows where `rows` (shape [rows of this table]) is true."""
        if self._rows is not None:
            outer = self._rows.copy()
            outer[outer] = rows
            rows = outer
        return Table(self.spec, self._source, rows)

    def records(self) -> Iterator[dict[str, Any]]:
        """Copies of the rows as dictionaries, which a caller may change. None where nothing was measured."""
        for row in self.shared_records():
            yield dict(row)

    def shared_records(self) -> Sequence[Mapping[str, Any]]:
        """The rows themselves, the same for all who ask. They must not be changed, and cost no copies: for what is
        asked once for each of many rules."""
        if self._records is not None:
            return self._records
        rows = self._as_objects() if self._source.rows else []
        if len(rows) <= _KEPT:
            self._records = rows
        return rows

    def _as_objects(self) -> list[dict[str, Any]]:
        """All rows with Python's numbers and texts, None where nothing was measured."""
        columns: list[list[Any]] = []
        for column in self.spec.columns:
            values = self._load(column.name)
            if isinstance(values, list):
                columns.append(values)
                continue
            plain = bool if column.type == "bool" else int if column.type.startswith("int") else float
            numbers, known = values
            if not known.any():
                columns.append([None] * len(numbers))
            elif known.all():
                columns.append(numbers.tolist() if plain is float else list(map(plain, numbers.tolist())))
            else:
                columns.append([plain(v) if k else None for v, k in zip(numbers.tolist(), known.tolist(), strict=True)])
        names = [column.name for column in self.spec.columns]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def forget(self) -> None:
        """Drop the columns that were read; they are read again when asked for."""
        self._cache.clear()
        self._records = None
        forget = getattr(self._source, "forget", None)
        if forget is not None:
            forget()

    def to_pandas(self) -> pd.DataFrame:
        """The whole table as a pandas DataFrame, for a notebook. What was not measured is NaN, or pandas' NA.

        Text, integers and booleans have pandas' nullable types (`string`, `Int64`, `boolean`), numbers `float64`.
        """
        import pandas as pd

        return pd.DataFrame({column.name: self._series(column.name, column.type) for column in self.spec.columns})

    def _series(self, name: str, type_: schema.ColumnType) -> pd.Series[Any]:
        import pandas as pd

        if type_ == "string":
            return pd.Series(self.text(name), dtype="string")
        values, known = self._numbers(name)
        if type_ == "float64":
            return pd.Series(values.copy())
        whole: Any = np.where(known, values, 0)
        if type_ == "bool":
            return pd.Series(pd.arrays.BooleanArray(whole.astype(bool), ~known))
        return pd.Series(pd.arrays.IntegerArray(whole.astype(np.int64), ~known))

    def _numbers(self, name: str) -> tuple[Floats, Mask]:
        values = self._load(name)
        if isinstance(values, list):
            raise TypeError(f"{self.spec.name}.{name} holds text, not numbers")
        return values

    def _load(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        if name not in self._cache:
            self.spec.column(name)  # KeyError for a column that the schema does not have
            values = self._source.read(name)
            if self._rows is not None:
                if isinstance(values, list):
                    values = [value for value, keep in zip(values, self._rows, strict=True) if keep]
                else:
                    values = (values[0][self._rows], values[1][self._rows])
            self._cache[name] = values
        return self._cache[name]


class MemoryColumns:
    """Columns held in memory, for importers and tests: `values[name]` is a list with None where nothing is known."""

    def __init__(self, spec: schema.Table, values: Mapping[str, list[Any]]) -> None:
        self._spec = spec
        self._values = values
        self.rows = max((len(column) for column in values.values()), default=0)

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        values = self._values.get(name, [None] * self.rows)
        if self._spec.column(name).type == "string":
            return list(values)
        known = np.array([value is not None for value in values], dtype=bool)
        numbers = np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
        return numbers, known
