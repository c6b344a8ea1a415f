"""Every diagnosis that can be made, whatever it is made from: a recorded run, a profiler trace, or either."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tracelyze.suggestions import unknown

if TYPE_CHECKING:
    from tracelyze.analyzers.kineto.rule import TraceRule
    from tracelyze.analyzers.rule import Family, Rule, Threshold
    from tracelyze.diagnosis import Severity


@dataclass(frozen=True)
class Entry:
    """One id of the catalogue: its rule for recorded runs, for profiler traces, or both."""

    run: Rule | None
    trace: TraceRule | None

    @property
    def rule(self) -> Rule | TraceRule:
        """The declaration that stands for the id: the one for runs, where there is one."""
        rule = self.run or self.trace
        assert rule is not None
        return rule

    @property
    def id(self) -> str:
        return self.rule.id

    @property
    def family(self) -> Family:
        return self.rule.family

    @property
    def severity(self) -> Severity:
        return self.rule.severity

    @property
    def title(self) -> str:
        return self.rule.title

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The thresholds of both rules; one setting serves both where they share a name."""
        declared = [threshold for rule in (self.run, self.trace) if rule for threshold in rule.thresholds]
        return tuple({threshold.name: threshold for threshold in reversed(declared)}.values())[::-1]


def entries(with_extensions: bool = True) -> list[Entry]:
    """The catalogue by family, in the order in which checks are listed; `with_extensions`: of other packages, too."""
    from tracelyze.analyzers import extensions
    from tracelyze.analyzers.kineto.rules import RULES as TRACE_RULES
    from tracelyze.analyzers.rules import RULES

    runs = {rule.id: rule for rule in (extensions.all_rules() if with_extensions else RULES)}
    traces = {rule.id: rule for rule in TRACE_RULES}
    found = [Entry(runs.get(identifier), traces.get(identifier)) for identifier in runs | traces]
    families = list(dict.fromkeys(entry.family for entry in found))
    return sorted(found, key=lambda entry: families.index(entry.family))


class ThresholdNames(Mapping[str, Collection[str]]):
    """Names of the thresholds by rule id. The rules are imported at the first look: most calls name none of them."""

    @cached_property
    def _names(self) -> dict[str, set[str]]:
        return {entry.id: {threshold.name for threshold in entry.thresholds} for entry in entries()}

    def __getitem__(self, rule: str) -> Collection[str]:
        return self._names[rule]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def check_ids(identifiers: Collection[str], known: Mapping[str, object], origin: str) -> None:
    """InputError with suggestions for the first of `identifiers` that is not in `known`."""
    for identifier in identifiers:
        if identifier not in known:
            raise unknown(f"{origin}: no such rule", identifier, known.keys(), "`tracelyze rules` lists them")
