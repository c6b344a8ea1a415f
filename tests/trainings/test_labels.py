"""Labels in the comments of a script, and the idiom that it is written in."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import labelled_scripts
from benchmarks.accuracy import interval, reseeded


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text)
    return path


def test_labels_are_read(tmp_path: Path) -> None:
    text = (
        "# tracelyze: roots=missing-zero-grad|exploding-gradients,no-shuffle consequences=loss-divergence\n"
        "import torch\n# tracelyze: lines=loss.backward();opt.step() args=--fault,one exit=3\n"
    )
    training = labelled_scripts.labelled(script(tmp_path, text))
    assert training is not None
    assert training.roots == ("missing-zero-grad|exploding-gradients", "no-shuffle")
    assert (training.consequences, training.lines) == (("loss-divergence",), ("loss.backward()", "opt.step()"))
    assert (training.args, training.exit_code, training.name) == (("--fault", "one"), 3, "train[one]")
    assert training.script == tmp_path / "train.py"
    assert labelled_scripts.read(tmp_path) == [training]
    assert [one.name for one in reseeded([training], 2)] == ["train[one]", "train[one]+1000"]


def test_a_healthy_script(tmp_path: Path) -> None:
    training = labelled_scripts.labelled(script(tmp_path, "# tracelyze: healthy\n"))
    assert training is not None
    assert training.healthy


@pytest.mark.parametrize("said", ["healthy roots=no-shuffle", "lines=loss.backward()", "root=no-shuffle", "broken"])
def test_labels_that_say_nothing_clear_are_errors(tmp_path: Path, said: str) -> None:
    path = script(tmp_path, f"# tracelyze: {said}\n")
    with pytest.raises(ValueError, match=r"train\.py: "):
        labelled_scripts.labelled(path)


def test_scripts_without_labels(tmp_path: Path) -> None:
    assert labelled_scripts.labelled(script(tmp_path, "import torch\n")) is None
    with pytest.raises(ValueError, match="no script with a line like"):
        labelled_scripts.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "idiom"),
    [
        ("from transformers import Trainer\nclass MyTrainer:\n    pass\n", "transformers"),
        ("import lightning as L\n", "lightning"),
        ("class ImageTrainer:\n    loader = DataLoader(data)\n", "Trainer class"),
        ("loader = DataLoader(data)\n", "DataLoader"),
        ("for step in range(10):\n    pass\n", "plain loop"),
    ],
)
def test_idioms(tmp_path: Path, text: str, idiom: str) -> None:
    assert labelled_scripts.idiom(script(tmp_path, text)) == idiom


def test_intervals_of_shares() -> None:
    assert interval(98, 98) == "96 to 100%"
    assert interval(0, 20) == "0 to 16%"
    assert interval(0, 0) == "-"
