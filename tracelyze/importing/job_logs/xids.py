"""XID errors of NVIDIA's driver in words, and what to do first.

Source: NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors), which names for each an immediate action.
"""

from __future__ import annotations

from typing import Final

_PROGRAM: Final = (
    "Look for an access out of bounds in the program (compute-sanitizer, CUDA_LAUNCH_BLOCKING=1), then start it again."
)
_RESTART: Final = "Start the program again; if it comes back on this GPU, have the GPU checked."
_RESET: Final = "Drain the node and reset the GPU (nvidia-smi --gpu-reset); if it comes back, have the GPU replaced."
_NODE: Final = "Drain the node and restart it; if it comes back, have the GPU, its power and its slot checked."
_LINK: Final = "Drain the node, reset its GPUs and look at the links (nvidia-smi nvlink --errorcounters)."
_FOLLOW: Final = "Look at the XID before it, which is the cause."
_NOTHING: Final = "Nothing has to be done at once."

XIDS: Final[dict[int, tuple[str, str]]] = {
    8: ("the GPU stopped processing", _RESTART),
    11: ("invalid commands reached the GPU", _PROGRAM),
    13: ("exception in a kernel on the GPU, often an access out of bounds", _PROGRAM),
    25: ("invalid commands reached the GPU", _PROGRAM),
    31: ("page fault in GPU memory, most often an illegal address of the program", _PROGRAM),
    32: ("invalid commands reached the GPU", _PROGRAM),
    38: ("error of the driver's firmware", _NOTHING),
    39: ("exception of a copy engine", _RESTART),
    40: ("exception of a copy engine", _RESTART),
    41: ("exception of a copy engine", _RESTART),
    43: ("the GPU stopped processing for this program", "Look for the error that the program met itself."),
    44: ("fault while the GPU switched between programs", _RESTART),
    45: ("the driver removed the program's work, after another error or its end", _FOLLOW),
    46: ("the GPU stopped processing", _RESET),
    48: ("uncorrectable (double bit) ECC error", _RESET),
    61: ("halt of the GPU's micro-controller", _RESET),
    62: ("halt of the GPU's micro-controller", _RESET),
    63: ("a row of GPU memory was marked for remapping", "Reset the GPU when it is idle, so that the row is remapped."),
    64: ("remapping of GPU memory failed", _RESET),
    68: ("exception of the video decoder", _RESTART),
    69: ("illegal command to the graphics engine", _PROGRAM),
    74: ("NVLink error", _LINK),
    79: ("the GPU has fallen off the bus", _NODE),
    80: ("corrupted commands reached the GPU", _PROGRAM),
    92: ("many single bit ECC errors, all corrected", _NOTHING),
    94: ("uncorrectable memory error, contained in this program", _RESTART),
    95: ("uncorrectable memory error, not contained: other programs on the GPU are hit, too", _RESET),
    119: ("the GPU's system processor (GSP) did not answer in time", _RESET),
    120: ("error of the GPU's system processor (GSP)", _RESET),
    121: ("corrected error of the link between chips (C2C)", _NOTHING),
    140: ("uncorrectable ECC error without its place", _RESET),
    145: ("NVLink error", _LINK),
    149: ("NVLink error", _LINK),
    154: ("the driver asks for a recovery", "Do what the line says."),
}
"""By number: what happened, and what to do first."""


def meaning(number: int) -> tuple[str, str]:
    """What happened and what to do first; of a number that is not in the table, where to look it up."""
    return XIDS.get(number, ("not among those explained here", "Look it up in NVIDIA's XID catalogue."))
