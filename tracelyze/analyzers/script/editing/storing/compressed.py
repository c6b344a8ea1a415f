"""The line that compresses a checkpoint beside the call that writes it: weights shrink little, and it takes long."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_COMPRESSES: Final = re.compile(
    r"\b(?P<with>gzip|bz2|lzma)\.(?:open|GzipFile|BZ2File|LZMAFile|compress)\("
    r"|\bshutil\.(?P<archive>make_archive)\(|\b(?P<zip>ZIP_DEFLATED|ZIP_BZIP2|ZIP_LZMA)\b"
    r"|\b(?P<arrays>savez_compressed)\("
)
_WRITES: Final = re.compile(
    r"\b(?:(?:pickle|joblib|json|dill|yaml)\.dump|np\.save\w*|numpy\.save\w*|savefig|imwrite|imsave|save_image"
    r"|to_(?:csv|json|parquet|pickle|hdf|feather|excel)|write_(?:text|bytes|table)|writerows)\("
)
_READS: Final = re.compile(r"""["']rb?t?["']""")


class Compressed(NamedTuple):
    """The line, and what to do about it."""

    place: Location
    fix: str


def of(process: Process, save: Location | None) -> Compressed | None:
    """The only line that compresses in the function of this call, of the lines around it that were recorded."""
    if save is None:
        return None
    lines = recorded_text.of_function(process, save)
    found = {at: match for at, text in lines.items() if (match := _COMPRESSES.search(code_of(text)))}
    found = {at: match for at, match in found.items() if not _READS.search(lines[at])}
    if len(found) != 1:
        return None
    ((at, match),) = found.items()
    by = match["with"] or match["archive"] or match["zip"] or match["arrays"]
    fix = (
        f"Line {at} compresses the checkpoint ({by}). That usually takes far longer than to write it, even at the "
        "lowest level, and weights shrink by little. Write it as it is, and read it so; or compress it in a thread of "
        "its own, or save less often."
    )
    return Compressed(save.at(at, lines[at]), fix)


def written(process: Process, seen: Location | None) -> str:
    """What to do about a line that was seen to take long and that writes a file, which need be no checkpoint."""
    if seen is None:
        return ""
    own = own_statement.at(process, seen)
    text = own.text if own is not None else seen.source
    packs = _COMPRESSES.search(text)
    if packs is not None and packs["arrays"]:
        return (
            f"Line {seen.line} compresses what it writes ({packs['arrays']}). That usually takes far longer than to "
            "write it, and weights shrink by little. Write it as it is (np.savez), or write it less often."
        )
    if _WRITES.search(text):
        return f"Line {seen.line} writes a file, in these steps only: write it less often, or in a thread of its own."
    return ""
