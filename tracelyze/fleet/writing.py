"""The table of a fleet as a file: Parquet, Arrow or CSV, by its suffix."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES: Final = (".parquet", ".arrow", ".feather", ".csv")


def check(path: Path) -> None:
    """InputError where the suffix names no format, or the folder does not exist: said before hours of work."""
    if path.suffix not in SUFFIXES:
        raise InputError(Cause.UNKNOWN_FORMAT, f"cannot tell the format of {path}: use one of {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise InputError(
            Cause.UNWRITABLE, f"cannot write {path}: the folder {path.parent} does not exist, make it first"
        )


def write(fleet: pa.Table, path: Path) -> None:
    """Write the table; the file appears complete or not at all. InputError, one line, if it cannot be written."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    check(path)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            scratch = Path(folder) / path.name
            if path.suffix == ".parquet":
                pyarrow.parquet.write_table(fleet, scratch, compression="zstd")
            elif path.suffix == ".csv":
                ranks = pa.array([None if r is None else " ".join(map(str, r)) for r in fleet["ranks"].to_pylist()])
                flat = fleet.set_column(fleet.schema.get_field_index("ranks"), "ranks", ranks.cast(pa.string()))
                pyarrow.csv.write_csv(flat, scratch)
            else:
                pyarrow.feather.write_feather(fleet, str(scratch))
            scratch.replace(path)
    except OSError as error:
        raise InputError(
            Cause.UNWRITABLE, f"cannot write {path}: {error.strerror or error}, choose another place with -o"
        ) from None
