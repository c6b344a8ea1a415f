"""What the device's activities of an imported trace say of themselves, stored so that a few steps are quickly found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tracelyze import reading, schema
from tracelyze.errors import Cause, InputError

_ROW_GROUP: Final = 1 << 15


def write_said(said: Iterable[tuple[float, str, str]], folder: Path) -> None:
    """Stores begin, stream and words of activities in `folder`. OSError if it cannot be."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.dictionary(pa.int32(), pa.string())
    fields = pa.schema([(one.name, pa.float64() if one.type == "float64" else texts) for one in schema.SAID.columns])
    options: Any = {"compression": "zstd", "write_statistics": ["start"]}
    rest = iter(said)
    with pq.ParquetWriter(_file(folder), fields, **options) as writer:
        while rows := list(islice(rest, _ROW_GROUP)):
            columns = zip(*rows, strict=True)
            writer.write_batch(
                pa.record_batch(
                    [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)], schema=fields
                )
            )


def read_said(folder: Path, windows: Sequence[tuple[float, float]]) -> Iterator[tuple[float, str, str]]:
    """Begin, stream and words of the activities that begin in one of `windows` (microseconds).

    Nothing where an earlier version made the import, which kept no words. Raises InputError where they cannot be read.
    """
    if not _file(folder).is_file():
        return
    try:
        with reading.open_parquet(_file(folder)) as file:
            at = file.schema_arrow.get_field_index("start")
            for index in range(file.num_row_groups):
                known: Any = file.metadata.row_group(index).column(at).statistics
                if known is not None and not any(known.min <= high and known.max >= low for low, high in windows):
                    continue
                for row in file.read_row_group(index, use_threads=False).to_pylist():
                    if any(low <= row["start"] <= high for low, high in windows):
                        yield row["start"], str(row["stream"]), str(row["text"])
    except reading.unreadable() as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            Cause.DAMAGED_TRACE, f"{_file(folder)}: cannot be read ({reason}); import the trace again"
        ) from error


def _file(folder: Path) -> Path:
    return folder / f"{schema.SAID.name}{schema.TABLE_SUFFIX}"
