"""How numbers, durations, shares, sizes and counts are written."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelyze import formatting


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"), (1234567, "1,234,567"), (0.0, "0"), (-0.0, "0"), (0.03125, "0.0312"), (12.3456, "12.3"),
        (185.3, "185"), (999.7, "1,000"), (98765.4, "98,765"), (1.2345e-7, "1.23e-07"), (2.5e12, "2.5e+12"),
        (math.nan, "NaN"), (math.inf, "Inf"), (-math.inf, "-Inf"), (None, "not known"), (True, "yes"),
        (-0.004, "-0.004"),
    ],
)  # fmt: skip
def test_numbers(value: float | None, written: str) -> None:
    assert formatting.number(value) == written


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0.12, "+12%"),
        (-0.034, "-3.4%"),
        (0.0, "0%"),
        (-0.0003, "under 0.1%"),
        (0.0003, "under 0.1%"),
        (-0.9999, "-99.9%"),
    ],
)
def test_changes(share: float, written: str) -> None:
    assert formatting.change(share) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0 s"),
        (4e-7, "0.4 µs"),
        (0.0000642, "64.2 µs"),
        (0.0004, "0.4 ms"),
        (0.048, "48 ms"),
        (0.99999, "1 s"),
        (12.34, "12.3 s"),
        (59.99, "1 min"),
        (250.2, "4 min 10 s"),
        (3600, "1 h"),
        (11100, "3 h 5 min"),
        (187200, "2 d 4 h"),
        (None, "not known"),
        (math.nan, "not known"),
        (-2, "-2 s"),
    ],
)
def test_durations(seconds: float | None, written: str) -> None:
    assert formatting.duration(seconds) == written


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0.38, "38%"), (0.0061, "0.6%"), (0.073, "7.3%"), (0.0001, "under 0.1%"), (1.0, "100%"), (0, "0%"),
        (0.997, "99.7%"), (0.9999, "over 99.9%"), (-0.12, "-12%"), (12.3, "1,230%"), (None, "not known"),
        (-0.0003, "under 0.1%"), (-0.9999, "-99.9%"),
    ],
)  # fmt: skip
def test_shares(share: float | None, written: str) -> None:
    assert formatting.percent(share) == written


@pytest.mark.parametrize(
    ("amount", "written"),
    [(0, "0 bytes"), (512, "512 bytes"), (1023.9, "1 KiB"), (1.5 * 2**30, "1.5 GiB"), (1023.99 * 2**20, "1 GiB")],
)
def test_sizes(amount: float, written: str) -> None:
    assert formatting.size(amount) == written


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (0.86, "share", "86%"), (146.0, "us", "0.146 ms"),
        (4096.0, "MiB", "4 GiB"), (250.0, "s", "4 min 10 s"), (3, "steps", "3 steps"), ("fp16", "", "fp16"),
        (12.0, "%", "12%"), (None, "ms", "not known"), (1.5, "MiB/step", "1.5 MiB/step"),
        (1, "modules", "1 module"), (1, "batches", "1 batch"), (1, "losses", "1 loss"),
        (1, "graphs/step", "1 graphs/step"),
    ],
)  # fmt: skip
def test_quantities(value: float | str | None, unit: str, written: str) -> None:
    assert formatting.quantity(value, unit) == written


@pytest.mark.parametrize(
    ("count", "noun", "written"),
    [
        (1, "step", "1 step"), (2000, "step", "2,000 steps"), (0, "batch", "0 batches"), (2, "epoch", "2 epochs"),
        (2, "process", "2 processes"), (2, "activity", "2 activities"), (2, "day", "2 days"),
        (2, "branch", "2 branches"),
    ],
)  # fmt: skip
def test_plurals(count: int, noun: str, written: str) -> None:
    assert formatting.plural(count, noun) == written


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_numbers_keep_three_digits(value: float) -> None:
    assert float(formatting.number(value).replace(",", "")) == pytest.approx(value, rel=5.1e-3)
    assert formatting.number(-value) == f"-{formatting.number(value)}"


@given(st.floats(min_value=1e-8, max_value=1e7))
def test_durations_can_be_read_back(seconds: float) -> None:
    units = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
    written = formatting.duration(seconds)
    parts = re.findall(r"([\d.,]+) (µs|ms|s|min|h|d)\b", written)
    assert " ".join(f"{amount} {unit}" for amount, unit in parts) == written
    read = sum(float(amount.replace(",", "")) * units[unit] for amount, unit in parts)
    assert read == pytest.approx(seconds, rel=0.05)
    assert all(0 < float(amount.replace(",", "")) < 1000 for amount, unit in parts if unit != "d")


@given(st.floats(min_value=0, max_value=1))
def test_a_share_is_nothing_or_everything_only_when_it_is(share: float) -> None:
    written = formatting.percent(share)
    assert (written == "0%") == (share == 0)
    assert (written == "100%") == (share == 1)
    assert " %" not in written


@given(st.floats(min_value=0, max_value=2**50))
def test_sizes_stay_below_the_next_unit(amount: float) -> None:
    written, unit = formatting.size(amount).rsplit(" ", 1)
    units = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    assert float(written.replace(",", "")) < 1024 or unit == "TiB"
    assert float(written.replace(",", "")) * units[unit] == pytest.approx(amount, rel=6e-3, abs=0.5)


def test_sizes_per_step_take_the_unit_that_reads_best() -> None:
    assert formatting.quantity(0.454, "MiB/step") == "465 KiB/step"
    assert formatting.quantity(2.5, "graphs/step") == "2.5 graphs/step"


def test_lists() -> None:
    assert [formatting.listed(names, most=3) for names in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    assert formatting.listed(range(998, 1003), most=3) == "998, 999, 1,000 and 2 more"


def test_long_texts() -> None:
    assert formatting.shortened("a b c", most=5) == "a b c"
    assert formatting.shortened("a b c", most=4) == "a b…"


def test_fractions() -> None:
    assert formatting.fraction(0.123) == "12%"
    assert formatting.fraction(0.000032) == "3.2e-05"


def test_the_end_of_a_name_is_kept() -> None:
    assert formatting.end_of_name("model.words.weight", 30) == "model.words.weight"
    assert formatting.end_of_name("base.model.words.weight", 14) == "…words.weight"
    assert formatting.end_of_name("a_name_without_a_dot", 10) == "…out_a_dot"


def test_abridged_keeps_both_ends() -> None:
    text = "first words " + "middle " * 60 + "last words"
    short = formatting.abridged(text, 120)
    assert len(short) <= 120
    assert short.startswith("first words ")
    assert short.endswith(" last words")
    assert formatting.abridged("a short one", 120) == "a short one"


def test_values_that_are_compared_have_one_unit() -> None:
    assert formatting.in_one_unit([14.5, 0.0495, 0.0199], "ms") == ["14.5 ms", "0.0495 ms", "0.0199 ms"]
    assert formatting.in_one_unit([1500.0, 20.0], "ms") == ["1.5 s", "0.02 s"]
    assert formatting.in_one_unit([2048.0, 512.0], "MiB") == ["2 GiB", "0.5 GiB"]
    assert formatting.in_one_unit([250.0, 1.0], "s") == ["4 min 10 s", "1 s"]
    assert formatting.in_one_unit([3.0, 1.0], "steps") == ["3 steps", "1 step"]
    assert formatting.in_one_unit([], "ms") == []


def test_the_line_of_a_library_is_no_part_of_a_message() -> None:
    timed_out = "Timed out waiting 15000ms for recv operation to complete"
    for place in ("[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] ", "[../c10/cuda/CUDA.cpp:9] "):
        assert formatting.without_source(place + timed_out) == timed_out
        assert formatting.without_source(f"RuntimeError: {place}{timed_out}") == f"RuntimeError: {timed_out}"
    for kept in ("[Rank 0] Watchdog caught a timeout", "[train.py:12] no such key", "[3, 4] and [5] differ"):
        assert formatting.without_source(kept) == kept
