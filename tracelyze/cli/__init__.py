"""The command line: `tracelyze collect | diagnose | compare | rules | signals | import | compact | schema`.

Each command is a module that registers itself with `app`; it imports what it needs when it runs, so that
`tracelyze --help` answers at once.
"""

from __future__ import annotations

import sys
import warnings
from typing import NoReturn

from tracelyze.cli.app import ExitCode, app
from tracelyze.errors import InputError

# The commands register themselves as they are imported: in the order of --help.
# isort: off
from tracelyze.cli import collect, diagnose, compare, watch, fleet, catalogue, runs, cut  # noqa: F401
# isort: on


def main() -> None:
    """Entry point of `tracelyze` and `python -m tracelyze`. Every error is one line on stderr, never a traceback."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of numbers that a damaged file holds
    try:
        sys.exit(app(prog_name="tracelyze", standalone_mode=False))
    except InputError as error:
        _refuse(error)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        from tracelyze.cli import wrong_calls

        refused = wrong_calls.refusal(error)
        if refused is not None:
            _refuse(refused)
        from tracelyze.cli import failure
        from tracelyze.reports.escaping import one_line

        sys.stderr.write(f"tracelyze: {one_line(failure.describe(error, sys.argv[1:]))}\n")
        sys.exit(ExitCode.WRONG_INPUT)


def _refuse(error: InputError) -> NoReturn:
    from tracelyze.reports.escaping import one_line

    sys.stderr.write(f"tracelyze: error {error.code}: {one_line(error)}\n")
    sys.exit(ExitCode.WRONG_INPUT)
