"""The runs of a fleet on a Ray cluster: options are named as Ray names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracelyze.errors import Cause, InputError
from tracelyze.fleet import judging, table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem


def judge(
    runs: Sequence[str],
    *,
    num_cpus: float = 1.0,
    concurrency: int | None = None,
    filesystem: FileSystem | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Position and table of every run, as they get ready, on the cluster that `ray.init` finds or that is connected.

    `num_cpus` of each task, `concurrency`: the most tasks at a time, `filesystem`: where the paths lie; all three as in
    `ray.data`. A run whose worker dies becomes a row with the status "error".
    """
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError(
            Cause.MISSING_PACKAGE, "--ray needs Ray; install it with pip install 'tracelyze[ray]'"
        ) from None
    import pyarrow as pa

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.max_errored_blocks = -1  # a fleet outlives the death of a worker: what is missing is reported below
    context.enable_progress_bars = False
    items = [{"position": position, "path": path} for position, path in enumerate(runs)]
    judged = ray.data.from_items(items, override_num_blocks=len(items)).map(
        _judge, fn_kwargs={"filesystem": filesystem}, num_cpus=num_cpus, concurrency=concurrency
    )
    missing = set(range(len(runs)))
    for row in judged.iter_rows():
        missing.discard(row["position"])
        yield row["position"], pa.ipc.open_stream(row["table"]).read_all()
    for position in sorted(missing):
        yield position, table.to_arrow([table.error_row(runs[position], "the Ray worker that judged it died")])


def _judge(row: dict[str, Any], filesystem: FileSystem | None = None) -> dict[str, Any]:
    """The row with its table as bytes: the columns of a block are then the same whatever the runs hold."""
    import pyarrow as pa

    found = table.to_arrow(judging.diagnose_row(row, filesystem)["checks"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    return {"position": row["position"], "table": sink.getvalue().to_pybytes()}
