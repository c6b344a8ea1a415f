"""A finding about a wrong value stands at the line that gives the value, where the line that uses it only names it."""

from __future__ import annotations

import pytest

from tracelyze.analyzers.script.settings import constants
from tracelyze.diagnosis import Diff, Evidence, Finding, Location, Setting
from tracelyze.testing import Workshop

RATE = Setting(("lr", "max_lr"), (3.0,), "0.3")
USE = "optimizer = Adam(model.parameters(), lr=cfg.lr)"


def moved(
    make: Workshop,
    *given: tuple[str, str],
    use: str = USE,
    name: str = "lr",
    own: str = "",
    setting: Setting = RATE,
    argv: tuple[str, ...] = (),
) -> Finding:
    """The finding about the line `use` in a script in which each line of `given` gives the name this constant."""
    sites = [{"site": 0, "role": "optimizer", "file": "train.py", "line": 60, "function": "main", "source": use}]
    sites += [
        {"site": at, "role": "constant", "file": "config.py", "line": at, "function": "Config", "source": text.strip(),
         "excerpt": text, "excerpt_line": at, "name": name, "own_name": own or name, "value": value}
        for at, (text, value) in enumerate(given, 1)
    ]  # fmt: skip
    process = make.process(make.steps(), sites=sites, facts={"argv": ["train.py", *argv]})
    place = Location("train.py", 60, "main", use)
    finding = Finding(
        "x", "warning", "likely", "", "", "", location=place, setting=setting, evidence=[Evidence("a", 1)]
    )
    return constants.at_its_constant(finding, process, ("learning_rate",))


FIELD = ("    lr: float = 3.0  # the rate", "3.0")


def test_the_line_that_gives_the_value_is_the_one_to_change(make: Workshop) -> None:
    finding = moved(make, FIELD)
    assert finding.location == Location("config.py", 1, "Config", "lr: float = 3.0  # the rate")
    assert finding.seen_at == Location("train.py", 60, "main", USE)
    assert finding.diff == Diff("config.py", 1, [FIELD[0]], ["    lr: float = 0.3  # the rate"])
    assert finding.fix_code == "lr: float = 0.3  # the rate"


@pytest.mark.parametrize(
    "use",
    [
        "optimizer = Adam(model.parameters(), cfg.lr)",
        "optimizer = torch.optim.SGD(params, lr=lr, momentum=0.9)",
        'optimizer = Adam(params=p, lr=config["lr"])',
        "optimizer = Adam(model.parameters(), lr=float(self.args.lr))",
        "schedule = OneCycleLR(optimizer, cfg.lr, total_steps=100)",
        "learning_rate=args.lr,",
    ],
)
def test_ways_to_use_a_name(make: Workshop, use: str) -> None:
    assert moved(make, FIELD, use=use).location.line == 1


@pytest.mark.parametrize(
    ("given", "value", "edited"),
    [
        ('parser.add_argument("--lr", type=float, default=3.0, help="3.0 or less")', "3.0", "default=0.3"),
        ('    "lr": 3.0, "wd": 3.0,', "3.0", '"lr": 0.3, "wd": 3.0'),
        ("cfg = Config(wd=3.0, lr=3.0)", "3.0", "Config(wd=3.0, lr=0.3)"),
        ("def main(model, lr: float = 3.0, wd=3.0):", "3.0", "lr: float = 0.3, wd=3.0"),
        ("lr = 3", "3", "lr = 0.3"),
        ("lr = 3e0", "3e0", "lr = 0.3"),
        ('config["lr"] = 3.0', "3.0", 'config["lr"] = 0.3'),
        ("epochs, lr = 30, 3.0", "3.0", "30, 0.3"),
    ],
)
def test_the_edit_changes_the_constant_alone(make: Workshop, given: str, value: str, edited: str) -> None:
    finding = moved(make, (given, value))
    assert finding.diff is not None
    assert edited in finding.diff.added[0]


def test_a_line_without_the_value_in_it_has_no_edit(make: Workshop) -> None:
    flag = ('parser.add_argument("--shuffle", action="store_true")', "False")
    finding = moved(
        make, flag, name="shuffle", use="loader = DataLoader(data, shuffle=args.shuffle)",
        setting=Setting(("shuffle",), (False,), "True"),
    )  # fmt: skip
    assert (finding.location.line, finding.diff) == (1, None)


@pytest.mark.parametrize(
    ("option", "edited"),
    [
        ('"--debug", action="store_false", help="look for NaN"', '"--debug", action="store_true", help="look for NaN"'),
        ("'--debug', action='store_false'", "'--debug', action='store_true'"),
        ('"--no-debug", dest="debug", action="store_false"', ""),  # on by choice
        ('"--no-debug", action="store_false"', ""),
        ('"--debug", action="store_false", default=True', '"--debug", action="store_false", default=False'),
    ],
)
def test_a_flag_that_turns_off_what_it_is_named_after(make: Workshop, option: str, edited: str) -> None:
    finding = moved(
        make, (f"parser.add_argument({option})", "True"), name="debug", use="set_detect_anomaly(args.debug)",
        setting=Setting(("mode",), (True,), "False"),
    )  # fmt: skip
    assert (finding.location.line, finding.fix_code) == (1, f"parser.add_argument({edited})" if edited else "")
    assert (finding.diff is not None) == bool(edited)


def test_a_value_that_goes_by_another_name_on_its_way(make: Workshop) -> None:
    assert moved(make, ("rate = 3.0", "3.0"), own="rate").diff.added == ["rate = 0.3"]


def test_of_several_lines_the_one_that_was_in_use(make: Workshop) -> None:
    other = ("    lr: float = 1e-3", "1e-3")
    assert moved(make, other, FIELD).location.line == 2
    assert moved(make, FIELD, FIELD).location.line == 60, "which of both is not known"


@pytest.mark.parametrize("argv", [("--lr", "3"), ("--lr=3.0",), ("optim.lr=3.0",), ("lr=3.0",), ("-l", "3"), ("-l3",)])
def test_what_the_command_line_says_is_no_default(make: Workshop, argv: tuple[str, ...]) -> None:
    option = ('parser.add_argument("-l", "--lr", default=3.0)', "3.0")
    assert moved(make, option, argv=argv).location.line == 60
    assert moved(make, option, argv=("--epochs", "3", "lr.txt")).location.line == 1


@pytest.mark.parametrize(
    ("given", "use"),
    [
        ([("lr = 0.3", "0.3")], USE),  # another value than was measured: it was overridden, or scheduled
        ([], USE),
        ([FIELD], "optimizer = Adam(model.parameters(), lr=3.0)"),
        ([FIELD], "optimizer = Adam(model.parameters(), lr=cfg.lr * world)"),
        ([FIELD], "optimizer = Adam(model.parameters())"),
        ([FIELD], "optimizer = Adam([{'params': a, 'lr': cfg.lr}, {'params': b, 'lr': 1.0}])"),
        ([FIELD], "optimizer.step()"),
        ([FIELD], "optimizer = make(Adam(p, lr=cfg.lr), Adam(q, lr=cfg.other))"),
        ([FIELD], "optimizer = Adam(*given, lr=)"),
    ],
)
def test_the_place_stays(make: Workshop, given: list[tuple[str, str]], use: str) -> None:
    finding = moved(make, *given, use=use)
    assert (finding.location, finding.seen_at, finding.diff) == (Location("train.py", 60, "main", use), None, None)


def test_the_arguments_of_calls_by_their_places(make: Workshop) -> None:
    clip = Setting(("max_norm",), (1.0,), "10")
    use = "torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)"
    assert moved(make, ("clip = 1.0", "1.0"), use=use, name="clip", setting=clip).diff.added == ["clip = 10"]
    workers = Setting(("num_workers",), (16,), "1")
    use = "loader = DataLoader(data, num_workers=cfg.workers, persistent_workers=True)"
    found = moved(make, ("workers: int = 16", "16"), use=use, name="workers", setting=workers)
    assert found.diff.added == ["workers: int = 1"]
    drawn = Setting(("high",), (100, 101), "1000")
    use = "t = torch.randint(0, T_MAX, (len(x),))"
    assert moved(make, ("T_MAX = 100", "100"), use=use, name="T_MAX", setting=drawn).diff.added == ["T_MAX = 1000"]
    debug = Setting(("mode",), (True,), "False")
    use = "torch.autograd.set_detect_anomaly(DEBUG)"
    assert moved(make, ("DEBUG = True", "True"), use=use, name="DEBUG", setting=debug).diff.added == ["DEBUG = False"]


def test_any_name_of_the_line_where_only_the_range_of_its_value_is_known(make: Workshop) -> None:
    use, late = "mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)", Setting((), (), ranges=((0.99, 0.99999),))

    def line(*given: tuple[str, str]) -> int:
        return moved(make, *given, use=use, name="decay", own="ema_decay", setting=late).location.line

    slow, fast = ("ema_decay: float = 0.999", "0.999"), ("ema_decay: float = 0.5", "0.5")
    assert line(slow) == 1
    assert line(fast, slow) == 2
    assert line(fast) == line(slow, slow) == line(("ema_decay = 1", "1")) == 60


def test_an_argument_of_a_framework_whose_value_was_not_measured(make: Workshop) -> None:
    def line(*given: tuple[str, str]) -> int:
        setting = Setting(("max_completion_length",), ())
        return moved(
            make, *given, use="max_completion_length=args.longest,", name="longest", setting=setting
        ).location.line

    assert line(("longest: int = 64", "64")) == 1
    assert line(("longest: int = 64", "64"), ("longest: int = 512", "512")) == 60
    assert line(("longest: bool = False", "False")) == 60


def test_numbers_that_are_put_together_are_what_they_make(make: Workshop) -> None:
    steps = Setting(("num_warmup_steps",), (1024,), "51")
    use = "scheduler = get_cosine_schedule_with_warmup(optimizer, cfg.warmup, total)"
    finding = moved(make, ("    warmup: int = 4 * 256", "4 * 256"), use=use, name="warmup", setting=steps)
    assert finding.diff == Diff("config.py", 1, ["    warmup: int = 4 * 256"], ["    warmup: int = 51"])
    for other in ("4 * 255", "2 ** 9999", "4 / 0", "None", "(4, 256)"):
        place = moved(make, (f"    warmup: int = {other}", other), use=use, name="warmup", setting=steps).location
        assert place is not None
        assert place.line == 60


def test_a_name_that_only_a_function_of_the_schedule_has(make: Workshop) -> None:
    """`LambdaLR(opt, factor(cfg))` names no length of its warm-up: the line that gives it by such a name does."""
    use, setting = "sched = LambdaLR(opt, factor(cfg))", Setting(("warmup",), (9999, 10000), "17", called="warm")

    def line(*given: tuple[str, str], name: str = "warmup_steps") -> int:
        place = moved(make, *given, use=use, name=name, setting=setting).location
        return place.line if place is not None else 0

    assert line(('"warmup_steps": 10000,', "10000")) == 1
    assert line(('"warmup_steps": 500,', "500")) == 60, "another length than the one that was measured"
    assert line(('"total_steps": 10000,', "10000"), name="total_steps") == 60
    assert line(("warmup_steps = 10000", "10000"), ("warmup_steps = 10000", "10000")) == 60, "which of both?"
