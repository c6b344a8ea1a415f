"""Lines that keep a tensor with its graph, as far as the recorded text of the loop shows them."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.evidence import kept_tensors

LOOP = """\
for x, y in loader:
    out = model(x)
    aux = penalty(out)
    loss = criterion(out, y) + 0.1 * aux
    total += loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen += len(x)"""


def found(make: Any, *last: str, loop: str = LOOP) -> list[tuple[int, str | None]]:
    lines = [*loop.split("\n"), *(f"    {line}" for line in last)]
    at = next(index for index, line in enumerate(lines) if "backward" in line)
    site = {
        "site": 1,
        "role": "backward",
        "file": "train.py",
        "line": at + 1,
        "function": "main",
        "source": lines[at].strip(),
        "excerpt_line": 1,
        "excerpt": "\n".join(lines),
    }
    process = make.process(sites=[site])
    kept = kept_tensors.lines(process.optimizations[0])
    return [(one.location.line, one.diff.added[0].strip() if one.diff else None) for one in kept]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("running += loss", "running += loss.item()"),
        ("self.losses.append(loss)", "self.losses.append(loss.detach())"),
        ('history["aux"].append(aux)', 'history["aux"].append(aux.detach())'),
        ("cache[step] = out", "cache[step] = out.detach()"),
        ("outputs.append((out, y))", None),
        ("running += loss * len(x)", None),
    ],
)
def test_what_keeps_a_graph(make: Any, line: str, instead: str | None) -> None:
    assert found(make, line) == [(10, instead)]


@pytest.mark.parametrize(
    "line",
    [
        "running += loss.item()",
        "losses.append(float(loss))",
        "outputs.append(out.detach())",
        "labels.append(y)",
        "count += 1",
        "print(loss)",
        'row["loss"] = value',
    ],
)
def test_what_keeps_none(make: Any, line: str) -> None:
    assert found(make, line) == []


def test_the_loss_itself_may_be_added_up(make: Any) -> None:
    assert found(make, loop=LOOP.replace("    total", "    loss += 0.1 * aux\n    total")) == []


def test_nothing_is_said_of_another_function_or_of_a_framework(make: Any) -> None:
    assert kept_tensors.lines(make.process().optimizations[0]) == []
    assert found(make, "losses.append(loss)", loop=LOOP.replace("loss.backward()", "trainer.backward()")) == []
