"""Gates of mixtures of experts: which expert is chosen for how many tokens.

A gate is known by its name (gate, router, switch) beside as many experts as it has outputs: a list of modules, or
weights with one more dimension. One of another name is known by what follows: it reads what the experts read, is called
before them, and they get the tokens that it gave them.

Where each expert is a module that gets its own tokens, these are counted: a bias or noise that the scores of the gate
do not hold may have chosen them. Elsewhere the largest score is taken for the choice.
"""

from __future__ import annotations

import re
from typing import Any

from tracelyze.collectors.program.modules.gate_parameters import GateParameter
from tracelyze.collectors.tensors.safe_computing import is_plain

NAMED = re.compile(r"gate|rout|switch", re.IGNORECASE)
IDLE = 0.1  # of an even share of the tokens: an expert that gets less is not used
NUMBERS = ("busiest", "busiest_share", "idle")


class _Beside:
    """A layer that is or may be a gate, with the tokens that the experts beside it get after it, in one forward."""

    def __init__(self, gate: Any, experts: list[Any], named: bool) -> None:
        self.gate, self.named = gate, named
        self.tokens = dict.fromkeys(map(id, experts), 0)
        self.early = False  # an expert was called before the gate
        self.chosen: Any = None  # tokens by first choice, on their device
        self.asked = 0  # tokens of the gate

    def shared_out(self) -> list[int] | None:
        """Tokens of each expert, if all tokens of the gate went to as many experts, which are not all of them.

        Experts that get equally many each may have been filled up to that number.
        """
        tokens = list(self.tokens.values())
        each, rest = divmod(sum(tokens), max(1, self.asked))
        known = not rest and 0 < each < len(tokens) and len(set(tokens)) > 1
        return tokens if known else None


class Gates:
    """The gates in a model."""

    def __init__(self, torch: Any, root: Any) -> None:
        self._torch = torch
        self._experts: dict[int, int] = {}  # by identity of the gate
        self._known: dict[int, _Beside] = {}  # by identity of the gate
        self._beside: dict[int, _Beside] = {}  # by identity of an expert
        self._read: list[tuple[int, list[Any]]] = []  # identity and NUMBERS of each gate that was called
        self.parameters: list[GateParameter] = []
        for path, parent in root.named_modules():
            children = dict(parent.named_children())
            self._search_parameters(path, parent, children)
            gates = {name: one for name, one in children.items() if NAMED.search(name)}
            numbers = {_experts(one) for name, one in children.items() if name not in gates} if gates else set()
            stacked = _stacked(parent)
            for gate in gates.values():
                outputs = _outputs(gate)
                own = any(one[0] == outputs and _inputs(gate) in one[1:] for one in stacked)
                if outputs is not None and outputs > 1 and (outputs in numbers or own):
                    self._experts[id(gate)] = outputs
            if len(gates) == 1:
                self._follow(next(iter(gates.values())), children)
            if not gates:
                self._search(children)

    def _search_parameters(self, path: str, parent: Any, children: dict[str, Any]) -> None:
        """Matrices that may be gates: of such a name, from what the experts read to as many numbers as there are."""
        lists = [list(one) for one in children.values() if type(one).__name__ == "ModuleList"]
        experts = [(len(members), _inputs(members[0])) for members in lists if members]
        stacked = _stacked(parent) + [shape for child in children.values() for shape in _stacked(child)]
        experts += [(shape[0], size) for shape in stacked for size in shape[1:]]
        for name, parameter in parent._parameters.items():
            if parameter is None or parameter.dim() != 2 or not NAMED.search(name):
                continue
            first, second = parameter.shape
            number = first if (first, second) in experts else second if (second, first) in experts else 0
            if number > 1:
                self.parameters.append(GateParameter(parameter, f"{path}.{name}".lstrip("."), int(number)))

    def _search(self, children: dict[str, Any]) -> None:
        """Layers that may be gates: one for each list of modules that are alike, which it has as many outputs as."""
        for experts in children.values():
            members = list(experts) if type(experts).__name__ == "ModuleList" else []
            inputs = {_inputs(one) for one in members}
            if len(members) < 2 or len({type(one) for one in members}) > 1 or len(inputs) != 1:
                continue
            width, number = inputs.pop(), len(members)
            if width is None or width <= number:
                continue
            others = [one for one in children.values() if one is not experts]
            alike = [one for one in others if (_inputs(one), _outputs(one)) == (width, number)]
            if len(alike) == 1:
                self._experts[id(alike[0])] = number
                self._count(_Beside(alike[0], members, named=False))

    def _follow(self, gate: Any, children: dict[str, Any]) -> None:
        """Count what the experts of a gate get, if they are the only list of modules beside it of that length."""
        lists = [list(one) for one in children.values() if type(one).__name__ == "ModuleList" and one is not gate]
        alike = [members for members in lists if len(members) == self._experts.get(id(gate))]
        if len(alike) == 1 and None not in alike[0]:  # those of other ranks
            self._count(_Beside(gate, alike[0], named=True))

    def _count(self, found: _Beside) -> None:
        self._known[id(found.gate)] = found
        self._beside |= dict.fromkeys(found.tokens, found)

    def returned(self, module: Any, output: Any) -> None:
        """A module within was called: was it an expert beside a gate, or beside a layer that may be one?"""
        beside = self._beside.get(id(module))
        if beside is not None and isinstance(output, self._torch.Tensor) and output.dim():
            beside.early |= not beside.asked
            beside.tokens[id(module)] += output.numel() // max(1, output.shape[-1])

    def facts(self, module: Any) -> dict[str, int]:
        """Columns of the table activations that are known of a gate; empty for other modules."""
        experts = self._experts.get(id(module))
        return {} if experts is None else {"experts": experts}

    def numbers(self, module: Any, output: Any, experts: int) -> list[Any]:
        """NUMBERS of a gate's output, on its device. NaN where its last dimension is not that of the experts."""
        torch = self._torch
        known = self._known.get(id(module))
        if output.dim() < 2 or not is_plain(torch, output):
            return [torch.full((), float("nan"), device=output.device)] * len(NUMBERS)
        if known is not None and (known.named or output.shape[-1] == experts):
            known.asked += output.numel() // max(1, output.shape[-1])
        if output.shape[-1] != experts:
            return [torch.full((), float("nan"), device=output.device)] * len(NUMBERS)
        choices = output.detach().reshape(-1, experts).argmax(1)
        chosen = (choices.unsqueeze(1) == torch.arange(experts, device=choices.device)).float()
        if known is not None:
            known.chosen = chosen.sum(0)
        shares = chosen.mean(0)
        return [shares.argmax(), shares.amax(), (shares < IDLE / experts).sum()]

    def called(self, module: Any, output: Any, experts: int) -> None:
        """A gate put this out."""
        self._read.append((id(module), self.numbers(module, output, experts)))

    def values(self) -> list[Any]:
        """NUMBERS of every gate that was called, one after the other; NaN of one that turned out to be none."""
        found: list[Any] = []
        for gate, numbers in self._read:
            known = self._known.get(gate)
            if known is None:
                found += numbers
            elif known.named:
                found += self._dispatched(known, numbers)
            else:
                refuted = self._refuted(known)
                found += numbers if refuted is None else [one + refuted for one in numbers]
        return found

    def _dispatched(self, known: _Beside, numbers: list[Any]) -> list[Any]:
        """NUMBERS by the tokens that the experts got, where that is known; as they are elsewhere."""
        tokens = known.shared_out()
        if tokens is None:
            return numbers
        most, even = max(tokens), sum(tokens) / len(tokens)
        counted = (tokens.index(most), most / known.asked, sum(one < IDLE * even for one in tokens))
        return [self._torch.full((), float(one), device=numbers[0].device) for one in counted]

    def _refuted(self, unnamed: _Beside) -> Any:
        """NaN, on its device, if what is called like no gate is none, as its experts got other tokens; else 0.

        Each expert gets the tokens whose first choice it is, and all together get as many for each token, but not all
        of them get all: a layer with as many outputs as there are heads or blocks beside it chooses nothing.
        """
        torch = self._torch
        if unnamed.chosen is None:
            return None
        tokens = list(unnamed.tokens.values())
        each, rest = divmod(sum(tokens), max(1, unnamed.asked))
        nan = torch.full((), float("nan"), device=unnamed.chosen.device)
        if unnamed.early or rest or not 0 < each < len(tokens):
            return nan
        pairs = zip(unnamed.chosen.unbind(), tokens, strict=True)
        fits = torch.stack([first == got if each == 1 else first <= got for first, got in pairs]).all()
        return torch.where(fits, torch.zeros_like(nan), nan)


def _experts(module: Any) -> int | None:
    """How many experts a module holds: the length of a list, or the first dimension of weights for all of them."""
    if type(module).__name__ == "ModuleList":
        return len(module)
    stacked = _stacked(module)
    return stacked[0][0] if stacked else None


def _stacked(module: Any) -> list[tuple[int, ...]]:
    """Shapes of a module's own weights that have a matrix for each of several experts: none of a convolution."""
    if hasattr(module, "kernel_size"):
        return []
    return [tuple(p.shape) for p in module._parameters.values() if p is not None and p.dim() == 3 and p.shape[0] > 1]


def _outputs(gate: Any) -> int | None:
    """Outputs of a gate: of its own weight, or of the last layer within."""
    weights = [p for p in gate.parameters() if p.dim() == 2]
    return int(weights[-1].shape[0]) if weights else None


def _inputs(module: Any) -> int | None:
    """Features that the first layer within reads."""
    weights = [p for p in module.parameters() if p.dim() == 2]
    return int(weights[0].shape[1]) if weights else None
