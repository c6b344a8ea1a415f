"""The line of a call on which it is given a setting: of one that stands on several lines, each argument has its own."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Finding


def at_its_argument(finding: Finding, process: Process) -> Finding:
    """The finding at the only argument of its statement that goes by a name of its setting, where that stands on
    another line of it; as it is where none is given, or several are."""
    setting, used = finding.setting, finding.location
    own = own_statement.at(process, used) if setting is not None and setting.names else None
    if setting is None or used is None or own is None or "\n" not in own.text:
        return finding
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)]
    given = [one for call in calls for one in call.keywords if one.arg in setting.names]
    line = own.line + given[0].lineno - 1 if len(given) == 1 else used.line
    if line == used.line:
        return finding
    source = own.text.split("\n")[line - own.line]
    return replace(finding, location=used.at(line, source), excerpt=None)
