"""What switches anomaly detection on: a line alone, an option above it or within it, and how that became true."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.throughput.debug_mode_left_on import anomaly_detection

CALL = "torch.autograd.set_detect_anomaly(True)"
BY_WORD = 'parser.add_argument("--debug-nan", type=bool, default=False)'


def finding_of(
    make: Any, lines: list[str], at: int, given: tuple[str, str] | None = None, argv: tuple[str, ...] = ()
) -> Any:
    """The finding in a script that switches it on in one of these lines, from line 10 on; `given`: a line with a
    constant for the option, and the constant."""
    source = {"function": "main", "file": "t.py", "excerpt": "\n".join(lines), "excerpt_line": 10}
    sites = [{"site": 0, "role": "anomaly", "line": 10 + at, "source": lines[at].strip(), **source}]
    if given is not None:
        text, value = given
        sites.append(
            {"site": 1, "role": "constant", "file": "t.py", "line": 3, "function": "parse", "source": text,
             "excerpt": text, "excerpt_line": 3, "name": "debug_nan", "own_name": "debug_nan", "value": value}
        )  # fmt: skip
    steps = make.steps() | {"anomaly_mode": [True] * 400}
    process = make.process(steps, sites=sites, facts={"argv": ["t.py", *argv]})
    return make.check("debug-mode-left-on", process)[2]


@pytest.mark.parametrize(
    ("lines", "at"),
    [
        (["    if args.debug_nan:", f"        {CALL}"], 0),
        (["    if args.debug_nan:", f"        {CALL}"], 1),
        (['    if config["debug_nan"]:  # now and then', f"        {CALL}"], 1),
        (["    torch.autograd.set_detect_anomaly(args.debug_nan)"], 0),
        (["    torch.autograd.set_detect_anomaly(mode=debug_nan)"], 0),
    ],
)
def test_a_word_of_the_command_line_that_is_always_true(make: Any, lines: list[str], at: int) -> None:
    finding = finding_of(make, lines, at, (BY_WORD, "False"))
    read = 'lambda word: word.lower() in ("1", "true", "yes")'
    assert finding.location.line == 3
    assert finding.diff.added == [f'parser.add_argument("--debug-nan", type={read}, default=False)']
    assert "Line 3 reads --debug-nan with type=bool" in finding.summary
    assert "under a condition" not in finding.fix


def test_a_command_line_that_says_what_was_meant(make: Any) -> None:
    lines = ["    if args.debug_nan:", f"        {CALL}"]
    meant = finding_of(make, lines, 0, (BY_WORD, "False"), ("--debug-nan", "True"))
    assert (meant.location.line, meant.diff) == (10, None)
    assert meant.fix == "Leave args.debug_nan off, but for a few steps."
    for off in (("--debug-nan", "False"), ("--debug-nan=0",)):
        assert finding_of(make, lines, 0, (BY_WORD, "False"), off).location.line == 3


def test_an_option_that_is_true_by_default(make: Any) -> None:
    lines = ["    if cfg.debug_nan:", f"        {CALL}"]
    finding = finding_of(make, lines, 1, ("    debug_nan: bool = True", "True"))
    assert (finding.location.line, finding.diff.added) == (3, ["    debug_nan: bool = False"])
    flag = finding_of(make, lines, 1, ('p.add_argument("--debug-nan", action="store_true")', "False"), ("--debug-nan",))
    assert (flag.location.line, flag.diff, flag.fix_code) == (10, None, "cfg.debug_nan = False  # where it is set")


@pytest.mark.parametrize(
    "lines",
    [
        [f"    {CALL}"],
        ["    if step < 10:", f"        {CALL}"],  # which nothing switches off again
        ["    if args.debug_nan and step < 10:", f"        {CALL}"],
        ["    if not args.fast:", f"        {CALL}"],
        ["    for batch in loader:", f"        {CALL}"],
    ],
)
def test_no_option_alone_decides(make: Any, lines: list[str]) -> None:
    finding = finding_of(make, lines, len(lines) - 1, (BY_WORD, "False"))
    assert (finding.location.line, finding.fix) == (9 + len(lines), anomaly_detection.FIX)
