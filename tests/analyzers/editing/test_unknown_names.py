"""Examples say which names in them are not the script's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tracelyze.analyzers.rules.checkpoints.resume_discontinuity import own_loads
from tracelyze.analyzers.script.editing import own_saves, unknown_names
from tracelyze.diagnosis import Location


def recorded(make: Any, text: str, line: int, function: str = "f") -> tuple[Any, Location]:
    source = text.split("\n")[line - 1].strip()
    row = {"site": 1, "role": "loss", "file": "train.py", "line": line, "function": function, "source": source}
    process = make.process(sites=[{**row, "excerpt": text, "excerpt_line": 1}])
    return process, process.site(1)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("hidden = hidden.detach()", ["hidden"]),
        ("with torch.no_grad():\n    logits = teacher(x)", ["teacher", "x", "logits"]),
        ("share = chosen.mean(0)\nloss = loss + share.sum()", ["chosen", "loss"]),
        ("for rows in order.split(64):\n    print(rows)", ["order"]),
        ("def init(worker):\n    np.random.seed(worker)\n\nloader = make(init)", ["make", "loader"]),
        ("kept = [p for p in params if p.requires_grad]\nprint(kept)", ["params"]),
        ("count += 1", ["count"]),
        ("export NAME=1", []),  # a command
        ("from torch.utils.checkpoint import checkpoint\nprint(checkpoint)", []),
    ],
)
def test_names_that_an_example_takes_from_around_it(code: str, names: list[str]) -> None:
    assert unknown_names.foreign(code) == names


def test_an_example_names_what_is_not_the_scripts_own(make) -> None:
    text = "def helper(teacher):\n    return teacher\n\ndef train(net, data):\n    loss = net(data).mean()"
    process, place = recorded(make, text, 5, "train")
    code = "loss = net(data) - teacher(data)"
    assert unknown_names.noted(code, process, place) == f"{unknown_names.NOTE}teacher\n{code}", "another function's"
    assert unknown_names.noted("loss = net(data)", process, place) == "loss = net(data)"
    assert unknown_names.noted("loss = helper(net)", process, place) == "loss = helper(net)"
    assert unknown_names.noted(code, process, None) == code
    elsewhere = unknown_names.noted(code, process, Location("train.py", 99, "crashed"))
    assert elsewhere.startswith(f"{unknown_names.NOTE}net, data, teacher, loss\n"), "none of its lines were recorded"
    assert unknown_names.noted(code, make.process(), place) == code, "no lines were recorded at all"


def test_an_argument_on_a_line_of_its_own_is_no_name_of_the_scripts(make) -> None:
    """`collate_fn=self.collator,` assigns nothing: an example that reads collate_fn would not run."""
    text = "def made(self):\n    size = 32\n    return DataLoader(\n        self.rows,\n"
    text += "        collate_fn=self.collator,\n        batch_size=size)"
    process, place = recorded(make, text, 3, "made")
    code = "loader = DataLoader(rows, batch_size=size, collate_fn=collate_fn)"
    noted = unknown_names.noted(code, process, place)
    assert noted.startswith(f"{unknown_names.NOTE}rows, collate_fn, loader\n"), noted
    process, place = recorded(make, "def f(x):\n    a, b=split(x)\n    (c, d)=b, a", 3)
    assert unknown_names.noted("print(a, b, c)", process, place) == "print(a, b, c)"


def test_names_of_the_statement_where_the_fault_was_seen_are_the_scripts_own(make) -> None:
    """The example changes the call of the loader, the line to change is that of the dataset, which draws."""
    read = "def __getitem__(self, i):\n    r = self.rng\n    return r.normal()"
    made = "def loader(self):\n    h = self.hparams\n    return DataLoader(data, batch_size=h.size)"
    row = {"role": "loss", "file": "train.py"}
    process = make.process(sites=[
        row | {"site": 1, "line": 3, "function": "__getitem__", "source": "return r.normal()", "excerpt": read,
               "excerpt_line": 1},
        row | {"site": 2, "line": 13, "function": "loader", "source": "return DataLoader(data, batch_size=h.size)",
               "excerpt": made, "excerpt_line": 11},
    ])  # fmt: skip
    code = "loader = DataLoader(data, batch_size=h.size, worker_init_fn=seed)"
    place, seen = process.site(1), process.site(2)
    assert unknown_names.noted(code, process, place).startswith(f"{unknown_names.NOTE}data, h, seed")
    assert unknown_names.noted(code, process, place, seen).startswith(f"{unknown_names.NOTE}seed")


def test_names_of_the_line_that_makes_the_optimizer_are_the_scripts_own(make: Any) -> None:
    """The example gives it another rate, the line to change is that of the setting."""
    text = "def main():\n    args = parse()\n    opt = SGD(net.parameters(), lr=args.lr, momentum=args.momentum)"
    row = {"file": "train.py", "excerpt": text, "excerpt_line": 1}
    process = make.process(sites=[
        row | {"site": 1, "role": "optimizer", "line": 3, "function": "main", "source": text.split("\n")[2].strip()},
        row | {"site": 2, "role": "constant", "line": 9, "function": "parse", "source": "add('--norm', default=0.25)",
               "excerpt": "def parse():\n    add('--norm', default=0.25)", "excerpt_line": 8},
    ])  # fmt: skip
    code = "opt = SGD(net.parameters(), lr=2e-5, momentum=args.momentum)"
    assert unknown_names.noted(code, process, process.site(2)) == code
    assert unknown_names.noted("print(args)", process, process.site(2)).startswith(f"{unknown_names.NOTE}args")


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ('print(f"teacher {score(module.teacher, *val):.3f}", "teacher")', False),
        ("print('teacher', module.teacher)", False),
        ('print(f"best {teacher!r:>8}")', True),
        ('print(f"at {score(teacher)[1:2]:.2f} of {total}")', True),
    ],
)
def test_what_a_text_says_is_no_name_and_what_it_computes_is_one(make, line: str, known: bool) -> None:
    process, place = recorded(make, line, 1)
    code = "teacher.requires_grad_(False)"
    assert unknown_names.noted(code, process, place) == (code if known else f"{unknown_names.NOTE}teacher\n{code}")


def test_parameters_with_a_default_are_names_of_their_function(make) -> None:
    text = (
        "def criterion(outputs, labels, items=None, *, mean: bool = True):\n    return cross_entropy(outputs, weight=1)"
    )
    process, place = recorded(make, text, 2, "criterion")
    assert unknown_names.noted("outputs / items * mean", process, place) == "outputs / items * mean"
    assert "weight" in unknown_names.noted("outputs * weight", process, place).split("\n")[0]


def test_self_is_the_scripts_own_where_its_attributes_are(make) -> None:
    text = "def helper(optimizer):\n    optimizer.zero_grad()\n\nclass A:\n    def fit(self):\n        self.opt.step()"
    process, place = recorded(make, text, 2, "helper")
    code = "self.opt.step()\nself.opt.zero_grad()"
    assert unknown_names.noted(code, process, place) == code
    other = "self.scaler.step(self.opt)"
    assert unknown_names.noted(other, process, place) == f"{unknown_names.NOTE}self\n{other}"


def test_what_was_read_from_a_file_keeps_its_name(make) -> None:
    process, place = recorded(make, "ckpt = torch.load(PATH, weights_only=False)", 1)
    code = 'checkpoint = torch.load(path)\nopt.load_state_dict(checkpoint["opt"])'
    assert own_loads.in_example(code, process, place) == f'{place.source}\nopt.load_state_dict(ckpt["opt"])'
    process, place = recorded(make, 'weights = torch.load(PATH)["model"]', 1)
    assert own_loads.in_example(code, process, place) == code, "a part of the file"


@pytest.mark.parametrize(
    ("line", "example"),
    [
        (
            'torch.save({"model": weights, "optimizer": self.opt.state_dict()}, self.path)',
            'torch.save({"model": model.state_dict(), "optimizer": self.opt.state_dict()}, self.path)',
        ),
        (
            'torch.save({"epoch": epoch, "best_acc": best, "weights": kept}, path)',
            'torch.save({"epoch": epoch, "best_acc": best, "weights": model.state_dict()}, path)',
        ),
        ("torch.save(initial, path / 'a.pt')", "torch.save(model.state_dict(), path / 'a.pt')"),
        ("accelerator.save(old.state_dict(), name)", "accelerator.save(model.state_dict(), name)"),
        ('torch.save({"body": a, "head": b}, path)', ""),  # which of them is the model is not known
        (
            'torch.save({"weights": copied(net), "epoch": epoch} | more, path)',
            'torch.save({"weights": model.state_dict(), "epoch": epoch} | more, path)',
        ),
        ("export(model, path)", own_saves.EXAMPLE),
    ],
)
def test_the_line_that_saves_stays_but_for_the_weights(make, line: str, example: str) -> None:
    assert own_saves.of_model(*recorded(make, line, 1)) == example


STORED = 'ckpt = {"state_dict": kept, "epoch": epoch}'


def test_a_file_keeps_the_keys_by_which_it_is_read(make) -> None:
    process, place = recorded(make, f"def save():\n    {STORED}\n    torch.save(ckpt, path)", 3)
    assert own_saves.of_model(process, place) == STORED.replace("kept", "model.state_dict()")
    more = own_saves.with_state(process, place, {"optimizer": "optimizer.state_dict()"}, own_saves.TO_GO_ON)
    assert more == STORED.replace("epoch}", 'epoch, "optimizer": optimizer.state_dict()}')
    process, place = recorded(make, "def save(ckpt):\n    torch.save(ckpt, path)", 2)
    assert own_saves.of_model(process, place, keys="state_dict epoch") == "", "it holds more than weights"
    assert own_saves.of_model(process, place, keys="0.weight 0.bias") == "torch.save(model.state_dict(), path)"
    assert own_saves.with_state(process, place, {"a": "b"}, own_saves.TO_GO_ON) == own_saves.TO_GO_ON


@pytest.mark.parametrize(
    ("code", "own"), [("rows = DataLoader(data, 8)", True), ("other = DataLoader(data, 8)", False)]
)
def test_the_statement_that_makes_a_loader_is_the_scripts_own_wherever_the_finding_is(make, code, own) -> None:
    lines = {"dataloader": "rows = DataLoader(data)", "sample": "return self.made[index]"}
    sites = [
        {"site": at, "role": role, "file": "a.py", "line": 10 * at, "function": role, "source": line}
        | {"excerpt": f"    {line}", "excerpt_line": 10 * at}
        for at, (role, line) in enumerate(lines.items(), 1)
    ]  # fmt: skip
    process = make.process(sites=sites)
    noted = unknown_names.noted(code, process, process.locations("sample")[0])
    assert (noted == code) is own


def test_names_at_the_line_that_a_comment_points_to(make) -> None:
    """`# below line 9` says where the example goes, which need not be the place of the finding."""
    rows = [
        {"site": 1, "role": "yields", "file": "a.py", "line": 3, "function": "batches", "source": "yield x[index]"},
        {"site": 2, "role": "backward", "file": "a.py", "line": 9, "function": "epoch", "source": "total.backward()"},
    ]
    rows = [one | {"excerpt_line": one["line"], "excerpt": f"    {one['source']}"} for one in rows]
    process = make.process(make.steps(), sites=rows)
    place = process.location("yields")
    code = "# below line {}, with the ids:\nlog(loss=total, batch=sample_ids)"
    there = unknown_names.noted(code.format(9), process, place)
    assert there.startswith(f"{unknown_names.NOTE}log, sample_ids\n")
    elsewhere = unknown_names.noted(code.format(90), process, place)
    assert elsewhere.startswith(f"{unknown_names.NOTE}log, total, sample_ids\n")


def test_no_example_brings_its_own_note() -> None:
    """The note stands above an example by itself: a second one, written by hand, would repeat it."""
    rooms = Path(unknown_names.__file__).parents[2]
    written = [file for file in rooms.rglob("*.py") if unknown_names.NOTE.strip() in file.read_text()]
    assert written == [Path(unknown_names.__file__)]
