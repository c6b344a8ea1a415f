"""The catalogue is complete, and its declarations hold together."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rule_files import RULE_FILES, name_of
from tracelyze import analyzers, schema
from tracelyze.analyzers import causality, rules
from tracelyze.analyzers.computed.crashes import families
from tracelyze.analyzers.recorded import in_words
from tracelyze.analyzers.rule import Family, Limits, Rule
from tracelyze.diagnosis import SEVERITIES, Finding

IDS = [rule.id for rule in rules.RULES]


def test_every_file_is_a_rule_of_the_list() -> None:
    files = sorted(name_of(path) for path in RULE_FILES)
    assert sorted(identifier.replace("-", "_") for identifier in IDS) == files
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("rule", rules.RULES, ids=IDS)
def test_a_declaration_is_complete(rule: Rule) -> None:
    assert rule.severity in SEVERITIES
    assert rule.family in get_args(Family)
    assert rule.title
    assert not rule.title.endswith(".")
    assert rule.about.endswith(".")
    assert rule.not_when.endswith(".")
    assert all(threshold.source for threshold in rule.thresholds)
    assert len({threshold.name for threshold in rule.thresholds}) == len(rule.thresholds)
    for alternative in rule.needs:
        for name in alternative:
            table, column = name.split(".")
            schema.table(table).column(column)
            assert in_words.noun(name), f"add {name!r} to analyzers/recorded/in_words.py: nouns, to follow 'not seen'"


@given(st.dictionaries(st.sampled_from(IDS), st.none() | st.integers(0, 5)))
def test_explanations_end_in_a_root(onsets: dict[str, int | None]) -> None:
    found = [Finding(rule, "info", "certain", rule, ".", ".", first_step=step) for rule, step in onsets.items()]
    causes = {finding.rule: finding.caused_by for finding in causality.explain(found, rules.RULES)}
    for rule in causes:
        seen = []
        cause: str | None = rule
        while cause is not None:
            assert cause not in seen
            seen.append(cause)
            cause = causes[cause]
    ordered = causality.order(causality.explain(found, rules.RULES))
    assert sorted(finding.rule for finding in ordered) == sorted(onsets)


def test_a_threshold_says_when_the_configuration_set_it() -> None:
    thresholds = next(rule.thresholds for rule in rules.RULES if rule.thresholds)
    name, default = thresholds[0].name, thresholds[0].default
    assert Limits(thresholds)[name] == default
    changed = Limits(thresholds, {name: default + 1})
    assert changed[name] == default + 1
    assert changed.source(name) == "set in the configuration"
    assert Limits(thresholds).source(name) == thresholds[0].source


def test_examples_leave_no_argument_out() -> None:
    """Whoever pastes `batch_size=...` gives the loader an Ellipsis; a comment may have dots."""
    unfinished = re.compile(r"[(,=]\s*\.\.\.\s*[,)]")
    for path in sorted(Path(analyzers.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "fix_code":
                texts = [str(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
                code = "\n".join(line.partition("#")[0] for line in "".join(texts).splitlines())
                assert not unfinished.search(code), path
    assert [family.name for family in families.FAMILIES if unfinished.search(family.fix_code)] == []
