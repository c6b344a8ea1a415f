"""Prints the scalars of a run of SwanLab as JSON lines: name, step, value, seconds. A program: see own_process.

The file is read by the classes with which swanlab itself reads it to upload it.
"""

from __future__ import annotations

import json
import sys

from swanlab.proto.swanlab.record.v1.record_pb2 import Record
from swanlab.sdk.internal.core_python.store import DataStoreReader


def main(path: str) -> None:
    """Up to the first record that is damaged or was cut off."""
    reader = DataStoreReader()
    reader.open(path)
    for data in reader:
        record = Record()
        record.ParseFromString(data)
        if record.HasField("scalar"):
            scalar = record.scalar
            seconds = scalar.timestamp.seconds + scalar.timestamp.nanos / 1e9
            print(json.dumps([scalar.key, scalar.step, scalar.value.number, seconds]))  # noqa: T201
        elif record.HasField("finish"):
            print(json.dumps({"state": int(record.finish.state)}))  # noqa: T201
    reader.close()


if __name__ == "__main__":
    main(sys.argv[1])
