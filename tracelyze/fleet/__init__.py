"""Many runs in one call: `tracelyze fleet` judges every run below folders and buckets and writes one table.

Begin with `judging`: a row with a path becomes a row with the run's checks, in one process, whatever the run holds.
`discovery` finds the runs, `storage` reads buckets, `local` and `ray_cluster` spread the work, `table` declares the
result, `summary` and `page` say what goes wrong most. It may import everything but the collectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def joined(tables: Iterable[tuple[int, pa.Table]]) -> pa.Table:
    """One table of those of all runs, which come as they get ready, in the order of their positions."""
    import pyarrow as pa

    return pa.concat_tables([table for _, table in sorted(tables, key=lambda pair: pair[0])])
