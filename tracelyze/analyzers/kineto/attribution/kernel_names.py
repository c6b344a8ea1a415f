"""Names of kernels and operators as people say them: without C++ namespaces, template lists and parameter types."""

from __future__ import annotations

import re
from typing import Final

from tracelyze.analyzers.kineto.reading.reader import LONGEST_NAME

LONGEST: Final = 64  # characters that fit a row of a table

_RETURNS: Final = re.compile(r"^(void|bool|int|float|double|auto|std::enable_if<.*?>::type)\s+")
_NOISE: Final = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\bconst\b|\bat::native::")
_SPECIFIC: Final = re.compile(
    r"(\w*[Ff]unctor\w*(?<!TensorIteratorFunctor)|\w+_kernel(?:_cuda|_impl)?|\w+Ops?|\w+Callable|\w+_1688gemm\w*|"
    r"cutlass\w*_\w+|\w*gemm\w*)(?=[<,>(:\s]|$)"
)
"""What names one instance of a general kernel: the functor, the operation, the generated kernel."""

_GENERAL: Final = re.compile(r"elementwise_kernel|reduce_kernel|multi_tensor_apply|^Kernel2?$|index_\w+kernel|^kernel$")
_BARE: Final = re.compile(r"[Kk]ernel2?")
_WRAPPER: Final = re.compile(
    r"([AB]?(Unary|Binary|Nullary)|(Unary|Binary|Pointwise)OpList\w*)Functor|ReduceOps?|gpu_kernel_impl\w*"
)
"""Functors that only apply another one."""

_ENGINE: Final = re.compile(r"^autograd::engine::evaluate_function: ")


def short(name: str) -> str:
    """A name of at most 64 characters, on one line. What is no C++ declaration is only cut."""
    said = _without_templates(_ENGINE.sub("", name))
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


def _without_templates(name: str) -> str:
    bare = _NOISE.sub("", _RETURNS.sub("", name)).strip()
    opened = next((index for index, char in enumerate(bare) if char in "<("), len(bare))
    head = bare[:opened]
    # A name that the reader had to cut need not close its brackets; words with blanks in them are no declaration.
    declared = bare.endswith((")", ">")) or len(name) >= LONGEST_NAME
    if not head or " " in head or opened == len(bare) or not declared:
        return name
    said = head.rsplit("::", 1)[-1] or head
    if bare[opened] == "<" and _GENERAL.search(said):
        # A kernel that applies some function: its name says nothing without the function's.
        found: list[str] = _SPECIFIC.findall(_template(bare, opened))
        specific = [one for one in found if not _GENERAL.search(one)]
        specific = [one for one in specific if not _WRAPPER.fullmatch(one)] or specific
        if specific:
            if _BARE.fullmatch(said):
                return specific[0]
            return f"{said}<{specific[-1] if said.startswith('reduce') else specific[0]}>"
    return said


def _template(name: str, opened: int) -> str:
    """The template list that opens at this place."""
    depth = 0
    for index in range(opened, len(name)):
        depth += (name[index] == "<") - (name[index] == ">" and name[index - 1] != "-")
        if depth == 0:
            return name[opened + 1 : index]
    return name[opened + 1 :]
