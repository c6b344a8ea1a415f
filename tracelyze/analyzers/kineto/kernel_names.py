"""Names of kernels and operators as people say them: without C++ namespaces, template lists and parameter types."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 64

_RETURNS: Final = re.compile(r"^(void|bool|int|float|double|auto)\s+")
_NOISE: Final = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\bconst\b|\bat::native::")
_TELLING: Final = re.compile(
    r"(\w*[Ff]unctor\w*(?<!TensorIteratorFunctor)|\w+_kernel(?:_cuda|_impl)?|\w+Ops?|\w+Callable|\w+_1688gemm\w*|"
    r"cutlass\w*_\w+|\w*gemm\w*)(?=[<,>(:\s]|$)"
)
"""What tells one instance of a general kernel from another: the functor, the operation, the generated kernel."""

_GENERAL: Final = re.compile(r"elementwise_kernel|reduce_kernel|multi_tensor_apply|^Kernel2?$|index_\w+kernel|^kernel$")
_WRAPPER: Final = re.compile(r"[AB]?(Unary|Binary|Nullary)Functor|(Unary|Binary|Pointwise)OpList\w*Functor|ReduceOps?")
"""Functors that only apply another one."""

_ENGINE: Final = re.compile(r"^autograd::engine::evaluate_function: ")


def short(name: str) -> str:
    """A name of at most 64 characters, on one line. What is no C++ declaration is only cut."""
    name = _ENGINE.sub("", name)
    bare = _NOISE.sub("", _RETURNS.sub("", name)).strip()
    head, template = _split(bare)
    said = head.rsplit("::", 1)[-1] if ("<" in bare or "(" in bare) and "::" in head else head
    if template and _GENERAL.search(said):
        # A kernel that applies some function: its name says nothing without the function's.
        telling = [found for found in _TELLING.findall(template) if not _GENERAL.search(found)]
        telling = [found for found in telling if not _WRAPPER.fullmatch(found)] or telling
        if telling:
            said = f"{said}<{telling[-1] if said.startswith('reduce') else telling[0]}>"
    said = said or name
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


def _split(name: str) -> tuple[str, str]:
    """What stands before the first bracket of a template or a parameter list, and the template list."""
    if name.startswith(("<", "(")):
        return name, ""
    opened = next((index for index, char in enumerate(name) if char in "<("), len(name))
    head = name[:opened].strip()
    if not head or " " in head or name[opened - 1] == " " or not name.endswith((")", ">")):
        return name, ""
    if opened == len(name) or name[opened] == "(":
        return head, ""
    depth = 0
    for index in range(opened, len(name)):
        depth += (name[index] == "<") - (name[index] == ">" and name[index - 1] != "-")
        if depth == 0:
            return head, name[opened + 1 : index]
    return head, name[opened + 1 :]
