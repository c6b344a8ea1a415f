"""Files that are listed by their names as text, beside labels that are read in another order."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.loss.loss_plateau import listed_names

TABLE = 'rows = list(csv.DictReader(open("labels.csv")))'
KEY = "key=lambda name: int(''.join(filter(str.isdigit, str(name))))"


def process_of(make: Any, lines: list[str], role: str = "listing") -> Any:
    words = ("listdir", "glob", "iterdir")
    at = next(number for number, line in enumerate(lines, 1) if any(word in line for word in words))
    excerpt = "\n".join(["def read(folder):", *(f"    {line}" for line in lines)])
    site = {"site": 60, "role": role, "file": "a.py", "line": at + 1, "function": "read", "source": lines[at - 1]}
    return make.process(sites=[site | {"excerpt_line": 1, "excerpt": excerpt}])


@pytest.mark.parametrize(
    ("lines", "ordered", "example"),
    [
        (["files = sorted(os.listdir(folder))", TABLE], True, f"files = sorted(os.listdir(folder), {KEY})"),
        ([TABLE, "files = os.listdir(folder)"], False, f"files = sorted(os.listdir(folder), {KEY})"),
        (["files = os.listdir(folder)", "files.sort()", TABLE], True, ""),
        (
            ["files = sorted(f for f in os.listdir(folder) if f)", 'kinds = pd.read_csv("k.csv")'],
            True,
            f"files = sorted((f for f in os.listdir(folder) if f), {KEY})",
        ),
        (["files = sorted(folder.glob('*.npy'))", 'kinds = np.loadtxt("k.txt")'], True, None),
    ],
)
def test_files_in_the_order_of_their_names(make: Any, lines: list[str], ordered: bool, example: str | None) -> None:
    found = listed_names.of(process_of(make, lines))
    assert found is not None
    assert found.ordered == ordered
    assert ("10 comes before 2" in found.said()) == ordered
    if example is not None:
        assert found.example == example


@pytest.mark.parametrize(
    "lines",
    [
        ["files = sorted(os.listdir(folder), key=number)", TABLE],
        ["files = os.listdir(folder)", "files.sort(key=number)", TABLE],
        ["files = natsorted(os.listdir(folder))", TABLE],
        ["files = sorted(os.listdir(folder))", "kinds = [kind_of(name) for name in files]"],  # no other order
    ],
)
def test_files_whose_order_nothing_else_has(make: Any, lines: list[str]) -> None:
    assert listed_names.of(process_of(make, lines)) is None


def test_what_did_not_list_files(make: Any) -> None:
    lines = ["files = sorted(os.listdir(folder))", TABLE]
    assert listed_names.of(process_of(make, lines, "step-text")) is None
