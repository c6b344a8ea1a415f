"""The recorded samples: small, neutral, and diagnosed as what their scripts say is wrong with them."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from tracelyze.analyzers import diagnose, load
from tracelyze.collectors.signals import SIGNALS

SAMPLES = Path(__file__).parents[1] / "sample_traces"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/run.json"))


LATER = {"updates"}  # signals that came after the samples were recorded last: empty it when they are recorded again
COUNTED = "times|steps|ranks|weights|tensors|batches|losses|passes|samples|parameters|layers|units"


@pytest.mark.parametrize("name", NAMES)
def test_no_sentence_counts_one_as_many_or_names_a_range_of_one_value(name: str) -> None:
    stored = (SAMPLES / "golden" / f"{name}.json").read_text()
    assert not re.findall(rf"(?<![\d.,\w-])1 (?:{COUNTED})\b.*", stored)
    assert not re.findall(r"between (\S+) and \1\b(?![.,]\d).*", stored)


def test_there_is_one_per_headline_diagnosis_and_a_healthy_one() -> None:
    assert NAMES == [
        "dataloader-bottleneck",
        "eval-in-train-mode",
        "fp16-overflow",
        "healthy",
        "memory-leak",
        "missing-zero-grad",
    ]
    assert sorted(path.stem.replace("_", "-") for path in (SAMPLES / "scripts").glob("*.py")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_root_cause_is_the_planted_one(name: str, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / name, tmp_path / name)
    diagnosis = diagnose(tmp_path / name)
    roots = [finding.rule for finding in diagnosis.roots()]
    assert roots == ([] if name == "healthy" else [name])
    assert (diagnosis.verdict == "ok") == (name == "healthy")
    for finding in diagnosis.roots():
        assert finding.location is not None, "the report points at a line of the script"
        assert (SAMPLES.parent / finding.location.file).read_text().splitlines()[finding.location.line - 1].strip()


@pytest.mark.parametrize("name", NAMES)
def test_every_signal_that_is_on_by_default_was_there(name: str) -> None:
    """A sample that an older build recorded would say that checks could not be made: python sample_traces/make.py."""
    (process,) = load(SAMPLES / name).processes
    there = {signal for signal, entry in process.signals.items() if entry.get("state") != "failed"}
    lacking = {signal.name for signal in SIGNALS if signal.default_on} - there
    assert lacking == LATER, f"record the samples again: {name} lacks {sorted(lacking)}"


@pytest.mark.parametrize("name", NAMES)
def test_the_diagnosis_is_the_golden_one(name: str) -> None:
    spec = importlib.util.spec_from_file_location("golden", SAMPLES.parent / "scripts" / "golden.py")
    assert spec is not None
    assert spec.loader is not None
    golden = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(golden)
    difference = golden.difference(name)
    assert not difference, "\n".join([*difference[:80], "look at it, then python scripts/golden.py --update"])


def test_they_are_small_and_say_nothing_of_the_machine_that_made_them() -> None:
    files = [path for path in SAMPLES.rglob("*") if path.is_file() and "scripts" not in path.parts]
    files = [path for path in files if path.name != "diagnosis.html"]  # of somebody who has diagnosed a sample
    assert sum(path.stat().st_size for path in files) < 2_000_000
    for path in files:
        assert not re.search(rb'"(/home|/root|/Users|/tmp|/work)/', path.read_bytes()), path
