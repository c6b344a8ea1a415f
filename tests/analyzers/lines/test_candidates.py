"""A line that can have done it is named where the script has no other, and not where another one may have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import applied, sites_of
from tracelyze.analyzers.computed.schedules import endless_warmups
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.rules.data.input_normalization import fitted, pixels, unread
from tracelyze.analyzers.rules.finetuning.prompt_in_loss import collators
from tracelyze.analyzers.rules.precision.autocast_not_applied import regions
from tracelyze.analyzers.rules.reinforcement.zero_advantage import coarse_rewards
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import preparing
from tracelyze.analyzers.script.datasets import batch_of_one
from tracelyze.testing import SITES

FIT = [("loop", 89, "fit", "for xb, yb in batches:"), ("backward", 92, "fit", "loss.backward()")]
CHANGE = "change = (sales[1:] - prev) / prev"


def process_with(make: Any, *lines: tuple[str, int, str, str], above: str = "", **more: Any) -> Process:
    """Each line with what is recorded around it: itself, below `above`."""
    rows = []
    for number, (role, line, function, source) in enumerate(lines):
        text = f"{above}\n{source}" if above and role not in ("loop", "backward") else source
        first = line - text[: -len(source)].count("\n") if text.endswith(source) else line
        rows.append(
            {"site": 30 + number, "role": role, "file": "train.py", "line": line, "function": function}
            | {"source": source.strip(), "excerpt": text, "excerpt_line": first}
        )
    process: Process = make.process(sites=[*SITES, *rows], **more)
    return process


def number(location: Any) -> int | None:
    return location.line if location is not None else None


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], 38),
        ([("singular", 49, "windows", "rel = (lv - mean) / (mean + 1.0)")], 38),
        ([("singular", 49, "windows", "rel = lv / lv.std().clamp_min(1e-6)")], 38),
        ([("singular", 49, "windows", "rel = lv / len(lv)")], 38),
        ([("singular", 97, "fit", "mean = total / n")], 38),  # the loop's own
        ([("singular", 60, "forward", "return x / x.norm()")], 38),
        ([("singular", 70, "report", "print(total / n)")], 38),
        ([("evaluation", 70, "score", "model.eval()"), ("singular", 75, "score", "return hits / n")], 38),
        ([("singular", 49, "windows", "rel = (lv - mean) / spread")], None),
        ([("singular-array", 49, "windows", "lv = np.log(lv)")], None),
        ([("singular-array", 49, "windows", "lv = np.log(lv + 1)")], 38),
    ],
)
def test_what_data_are_divided_by(make: Any, others: list[Any], expected: int | None) -> None:
    process = process_with(make, *FIT, ("singular", 38, "to_features", CHANGE), *others)
    assert number(preparing.line(process)) == expected


def test_a_division_without_warnings_among_several(make: Any) -> None:
    quiet = process_with(
        make,
        *FIT,
        ("singular", 38, "to_features", f"    {CHANGE}"),
        above='with np.errstate(all="ignore"):',
    )
    place = quiet.locations("singular")[0]
    assert preparing.line(quiet) == place
    assert preparing.remedy(quiet, place)[1] == "change = np.where(prev != 0, (sales[1:] - prev) / prev, 0.0)"
    rows = [{**row, "site": 60 + at} for at, row in enumerate(quiet.sites.records()) if row["role"] == "singular"]
    other = {**rows[0], "site": 70, "line": 49, "function": "windows", "source": "a = b / c", "excerpt": "a = b / c"}
    other |= {"excerpt_line": 49}
    assert number(preparing.line(make.process(sites=[*SITES, *rows, other]))) == 38
    twice = {**rows[0], "site": 71, "line": 59, "function": "others", "excerpt_line": 58}
    assert preparing.line(make.process(sites=[*SITES, *rows, twice])) is None


def test_several_lines_of_a_stretch_may_each_be_the_one(make: Any) -> None:
    prices = ("singular", 34, "features", "    r = np.log(price[1:] / price[:-1])")
    volumes = ("singular", 35, "features", "    v = np.log(volume[1:] / volume[:-1])")
    process = process_with(make, *FIT, prices, volumes)
    place = preparing.line(process)
    fix, code = preparing.remedy(process, place)
    assert number(place) == 34
    assert "Lines 34 and 35" in fix
    assert code.splitlines()[1] == "v = np.log((volume[1:] + 1e-6) / (volume[:-1] + 1e-6))"


def test_a_logarithm_of_a_ratio_breaks_on_either_side(make: Any) -> None:
    process = process_with(make, *FIT, ("singular", 34, "features", "    r = np.log(now / before)"))
    fix, code = preparing.remedy(process, preparing.line(process))
    assert "takes the logarithm of a ratio: say what it is to be where now or before is 0" in fix
    assert code == "r = np.log((now + 1e-6) / (before + 1e-6))"


def test_a_divisor_that_is_made_of_what_is_bounded(make: Any) -> None:
    made = ("singular", 49, "windows", "rel = (lv - mean) / (0.3 * mean)")
    assert preparing.line(process_with(make, *FIT, made, above="mean = lv.mean() + 1.0")) is None
    assert number(preparing.line(process_with(make, *FIT, made, above="mean = lv.mean()"))) == 49


@pytest.mark.parametrize(
    ("lines", "device", "expected"),
    [
        (['@custom_fwd(device_type="cpu", cast_inputs=torch.float32)'], "cpu", 10),
        (['with torch.autocast("cpu", enabled=False):'], "cpu", 10),
        (['with torch.autocast("cpu", enabled=False):', "@custom_fwd(cast_inputs=torch.float32)"], "cpu", None),
        (['with torch.autocast("cuda", dtype=torch.bfloat16):'], "cpu", 10),
        (['with torch.autocast(device_type="cpu"):'], "cuda:0", 10),
        (["with torch.cuda.amp.autocast():"], "cpu", 10),
        (['with torch.autocast("cpu", dtype=torch.bfloat16):'], "cpu", None),
        (["@custom_fwd(cast_inputs=torch.bfloat16)"], "cpu", None),
        (['with torch.autocast("cuda"):', 'with torch.autocast("mps"):'], "cpu", None),
    ],
)
def test_what_keeps_autocast_away(make: Any, lines: list[str], device: str, expected: int | None) -> None:
    places = [("autocast-text", 10 * (at + 1), "forward", text) for at, text in enumerate(lines)]
    held = [{"optimizer": 0, "name": "SGD", "device": device}]
    away = regions.away(process_with(make, *places, optimizers=held).longest)
    assert number(away.place) == expected
    assert ("line 10" in away.fix) is (expected == 10)
    if "cast_inputs=torch.float32" in lines[0] and expected:
        assert away.code == '@custom_fwd(device_type="cpu")  # in place of line 10'


@pytest.mark.parametrize(
    ("sources", "expected", "code"),
    [
        (["scores.append(float(hits // len(want)))"], 50, "scores.append(float(hits / len(want)))"),
        (["return round(hits / n)"], 50, "return (hits / n)"),
        (["return [int(one / n) for one in hits]"], 50, "return [(one / n) for one in hits]"),
        (["got = int(text)"], 40, ""),  # it reads a number
        (["half = text[: len(text) // 2]"], 40, ""),
        (["if hits // 2 > 3:"], 40, ""),
        (["return round(hits / n, 3)"], 40, ""),
        (["for i in range(n // 2):"], 40, ""),
        (["a = hits // n", "b = other // n"], 40, ""),
    ],
)
def test_what_makes_a_reward_all_or_nothing(make: Any, sources: list[str], expected: int, code: str) -> None:
    gives = ("reward", 40, "order_reward", "def order_reward(completions, target):")
    lines = [("reward-rounded", 50 + 9 * at, "order_reward", text) for at, text in enumerate(sources)]
    elsewhere = ("reward-rounded", 90, "length_reward", "return hits // n")
    process = process_with(make, gives, *lines, elsewhere)
    place = coarse_rewards.within(process, process.location("reward"))
    assert number(place) == expected
    remedy = coarse_rewards.remedy(process, place)
    assert (remedy[1] if remedy else "") == code


DIVIDES = ("byte-scaled", 35, "__call__", "if t.dtype == torch.uint8:")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([DIVIDES, ("array-cast", 54, "load", "imgs = imgs[..., None].astype(np.float32)")], 54),
        ([DIVIDES, ("array-cast", 54, "load", "imgs = np.asarray(imgs, dtype=np.float32)")], 54),
        ([("byte-scaled", 97, "main", "t = ToTensor()"), ("array-cast", 54, "load", "x = x.astype('float32')")], 54),
        ([("array-cast", 54, "load", "imgs = imgs.astype(np.float32)")], None),  # nothing divides bytes
        ([("byte-scaled", 35, "save", "a.astype(np.uint8)"), ("array-cast", 54, "load", "x = x.astype(np.float32)")],
         None),
        ([DIVIDES, ("array-cast", 54, "load", "imgs = imgs.astype(np.float32) / 255")], None),
        ([DIVIDES, ("array-cast", 36, "__call__", "t = t.astype(np.float32)")], None),  # the transform itself
        ([DIVIDES, ("array-cast", 54, "load", "labels = labels.astype(np.float32)")], None),
        ([DIVIDES, *(("array-cast", at, "load", "x = x.astype(np.float32)") for at in (54, 60))], None),
    ],
)  # fmt: skip
def test_floats_in_front_of_a_transform_of_bytes(make: Any, lines: list[Any], expected: int | None) -> None:
    process = process_with(make, *lines)
    place = pixels.line(process)
    assert number(place) == expected
    if place is not None:
        assert "/ 255" in pixels.remedy(process, place)[1]


UNUSED = """\
    train_scaled = scaler.transform(train[COLUMNS])
    val_scaled = scaler.transform(val[COLUMNS])
    print(train_scaled.mean())
    train_set = to_dataset(train[COLUMNS], train.rent)
    val_set = to_dataset(val[COLUMNS], val.rent)
"""


def test_scaled_values_that_nothing_reads(make: Any) -> None:
    lines = dict(enumerate(UNUSED.splitlines(), 1))
    roles = {1: "unread", 2: "unread", 4: "raw", 5: "raw"}
    around = {"file": "t.py", "function": "main", "excerpt": UNUSED.rstrip("\n"), "excerpt_line": 1}
    sites = [around | {"site": at, "line": at, "role": role, "source": lines[at].strip()} for at, role in roles.items()]
    remedy = unread.remedy(make.process(sites=sites))
    assert remedy is not None
    assert number(remedy.place) == 4
    assert "Take train_scaled in line 4: line 1 scales train[COLUMNS] into it" in remedy.fix
    assert remedy.code == "train_set = to_dataset(train_scaled, train.rent)\nval_set = to_dataset(val_scaled, val.rent)"
    assert remedy.fix.endswith("The same goes for line 5.")
    more = around | {"site": 6, "line": 6, "role": "raw", "source": "plot(train[COLUMNS])"}
    three = unread.remedy(make.process(sites=[*sites, more]))
    assert three is not None
    assert three.fix.endswith("The same goes for lines 5 and 6.")
    longer = sites[0] | {"source": "scaled = scaler.transform(x)"}, sites[2] | {"source": "fit(x_max)"}
    assert unread.remedy(make.process(sites=[one | {"excerpt": None} for one in longer])) is None
    elsewhere = [sites[0], sites[2] | {"function": "other"}]
    assert unread.remedy(make.process(sites=elsewhere)) is None
    assert unread.remedy(make.process(sites=sites[:2])) is None, "the values as they were go unused as well"


@pytest.mark.parametrize(
    ("head", "line", "code"),
    [
        ("for name, part in parts.items():", "part = (part - mean) / std", "parts[name] = (part - mean) / std"),
        (
            "for i, x in enumerate(self.rows):",
            "x = x.sub(1) if i else (x - m) / s",
            "self.rows[i] = x.sub(1) if i else (x - m) / s",
        ),
        ("for part in parts.values():", "part = (part - mean) / std", ""),
        ("for name, part in parts.items():", "part = part.dropna()", None),
        ("for name, part in parts.items():", "part = (mean - part) / std", None),
    ],
)
def test_values_that_are_scaled_into_the_variable_of_a_loop(make: Any, head: str, line: str, code: str | None) -> None:
    site = {"site": 30, "role": "left-alone", "file": "t.py", "line": 62, "function": "prepare", "source": line}
    site |= {"excerpt": f"    {head}\n        {line}\n    return parts", "excerpt_line": 61}
    found = unread.remedy(make.process(sites=[site]))
    assert (found and found.code) == code
    if found is not None:
        assert number(found.place) == 62
        held = code.partition("[")[0] if code else "What the loop goes over"
        assert f"{held} still holds the values as they were" in found.fix


def scaled_in_vain(make: Any, *lines: str) -> Any:
    text = "\n".join(f"    {one}" for one in lines)
    last = {"site": 30, "role": "dataloader", "file": "t.py", "line": 60 + len(lines), "function": "main"}
    return unread.remedy(make.process(sites=[last | {"source": lines[-1], "excerpt": text, "excerpt_line": 61}]))


def test_scaled_values_that_are_dropped(make: Any) -> None:
    fits, loads = "scaler.fit_transform(x_train)", "train = DataLoader(TensorDataset(x_train))"
    found = scaled_in_vain(make, "scaler = StandardScaler()", fits, "scaler.transform(x_valid)", loads)
    assert number(found.place) == 62
    assert found.fix.startswith("Assign the result in line 62: a scaler returns the scaled values, and x_train stays")
    assert found.fix.endswith("The same goes for line 63.")
    assert found.code == f"x_train = {fits}\nx_valid = scaler.transform(x_valid)"
    for others in (
        ("x_train = scaler.transform(x_train)",),
        ("scaler = StandardScaler(copy=False)",),
        ("z = scaler.transform(", "    x_train)"),
    ):
        assert scaled_in_vain(make, fits, *others, loads) is None, "it is kept, or written in place"
    goal = "y_train, y_val = y_scaler.transform(y_train), y_scaler.transform(y_val)"
    assert number(scaled_in_vain(make, goal, fits, loads).place) == 62, "the scaler of the targets is another one"
    assert scaled_in_vain(make, "z = other.transform(z_train)", fits, loads) is None
    assert scaled_in_vain(make, "y = scaler.transform(y)", fits, loads) is None, "the same one"
    assert scaled_in_vain(make, "y_scaler.transform(y_train)", loads) is None, "the inputs are what is missed"
    assert scaled_in_vain(make, "scaler.fit(x_train)", loads) is None
    assert scaled_in_vain(make, "scaler.transform(load(path))", loads) is None


@pytest.mark.parametrize(
    ("samples", "forwards", "single"),
    [(385, 4, True), (770, 8, True), (384, 3, False), (386, 4, False), (771, 8, False), (0, 0, False)],
)
def test_a_pass_that_ends_with_one_sample(make: Any, samples: int, forwards: int, single: bool) -> None:
    loaders = [{"loader": 0, "length": 4, "batch_size": 128, "made_at": 30}]
    evals = {"after_step": [9], "loader": [0], "samples": [samples], "forwards": [forwards], "loss": [float("nan")]}
    made = ("dataloader", 95, "main", "val = DataLoader(held, batch_size=128)")
    found = batch_of_one.ending(process_with(make, made, loaders=loaders, evals=evals))
    assert (found is not None) is single
    if found is not None:
        assert number(found.line) == 95
        assert found.diff is not None
        assert found.diff.added == ["val = DataLoader(held, batch_size=128, drop_last=True)"]
    finite = evals | {"loss": [0.3]}
    assert batch_of_one.ending(process_with(make, made, loaders=loaders, evals=finite)) is None


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["return x @ y / self.t", "return (p * q).sum(1) / p.sum(1)"], 20),
        (["return x / (p.sum(1) + 1e-6)", "return (p * q).sum(1) / p.sum(1)"], 20),
        (["return x / p.norm()", "return (p * q).sum(1) / p.sum(1)"], None),
        (["return x / self.spread", "return (p * q).sum(1) / p.sum(1)"], None),  # which may hold zeros
        (["return x @ y / self.temperature", "return x / math.pi"], None),
    ],
)
def test_the_only_division_by_what_may_be_zero(make: Any, sources: list[str], expected: int | None) -> None:
    lines = [("singular", 10 * (at + 1), f"f{at}", text) for at, text in enumerate(sources)]
    assert number(script_lines.singular_of(process_with(make, *lines), ["division by 0"])) == expected


RATIO = ("singular", 52, "mape", "    return ((given - y) / y).abs().mean()")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (("singular", 29, "__init__", "        self.x = (x - x.mean(0)) / x.std(0)"), 52),
        (("singular", 29, "__getitem__", "        return self.x[i] / self.y[i]"), 52),
        (("singular", 29, "score", "    return hits / count"), 52),  # which evaluates
        (("singular", 80, "fit", "    x = (x - mean) / std"), 52),  # before the loop
        (("singular", 95, "fit", "    return total / count"), 52),
        (("singular", 90, "fit", "        x = x / x.sum(1)"), None),  # in the loop
        (("singular", 29, "forward", "        return x / x.sum(1)"), None),
    ],
)
def test_a_division_that_no_backward_runs_through_is_no_candidate(make: Any, other: Any, expected: int | None) -> None:
    loop = [("loop", 89, "fit", "    for xb, yb in batches:"), ("backward", 92, "fit", "        loss.backward()")]
    apart = [("sample", 37, "__getitem__", "return x, y"), ("evaluation", 70, "score", "model.eval()")]
    process = process_with(make, *loop, *apart, RATIO, other)
    assert number(script_lines.singular_of(process, ["division by 0"])) == expected


IGNORES = ("ignored", 60, "tokenize", "labels = [-100] * len(prompt) + answer")
COLLATOR = ("collator", 97, "main", "data_collator=DataCollatorForLanguageModeling(tok, mlm=False),")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([IGNORES, COLLATOR], 97),
        ([COLLATOR], None),  # labels of all texts are wanted
        ([IGNORES], None),
        ([("ignored", 60, "loss", "return F.cross_entropy(x, targets, ignore_index=-100)"), COLLATOR], None),
        ([("ignored", 60, "shift", "x = x - (-100)"), COLLATOR], None),
        ([IGNORES, COLLATOR, ("collator", 120, "main", "other = DataCollatorForLanguageModeling(tok)")], None),
    ],
)
def test_a_collator_that_makes_labels_anew(make: Any, lines: list[Any], expected: int | None) -> None:
    process = process_with(make, *lines)
    place = collators.line(process)
    assert number(place) == expected
    if place is not None:
        fix, code = collators.remedy(process, place)
        assert "line 60 masks" in fix
        assert code.startswith("data_collator=DataCollatorForSeq2Seq(tok),")


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("s = LambdaLR(opt, lambda step: (step + 1) / cfg.warm)", "lambda step: min(1.0, (step + 1) / cfg.warm)"),
        ("s = LambdaLR(opt, lambda n: float(n) / 100)", "lambda n: min(1.0, float(n) / 100)"),
        ("s = LambdaLR(opt, lambda step: min(1, step / 100))", ""),
        ("s = LambdaLR(opt, lambda step: 1 - step / 100)", ""),
        ("s = LambdaLR(opt, lambda step: (100 - step) / 100)", ""),
        ("s = LambdaLR(opt, lambda step: step / 100 if step < 100 else 1.0)", ""),
        ("s = LambdaLR(opt, lambda step: 1 / (step + 1))", ""),
        ("s = LambdaLR(opt, factor)", ""),
    ],
)
def test_a_warm_up_that_never_ends(make: Any, source: str, code: str) -> None:
    made = ("scheduler", 82, "train", source)
    schedule = {"scheduler": 0, "optimizer": 0, "name": "LambdaLR", "base_lr": 0.001, "made_at": 30, "step": 1}
    process = process_with(make, made, more={"schedules": [schedule]})
    found = endless_warmups.endless(process.longest, 0.01)
    assert (found is not None and code in found.code) is bool(code)
    assert endless_warmups.endless(process.longest, 0.0001) is None, "a rate that is too high at 1 as well"


@pytest.mark.parametrize(
    ("body", "capped"),
    [
        ("return (step + 1) / warm", "return min(1.0, (step + 1) / warm)"),
        ('"""Factor of the rate."""\n    return step / 100', "return min(1.0, step / 100)"),
        ("return min(1.0, step / 100)", None),
        ("if step < 100:\n        return step / 100\n    return 1.0", None),
        ("step = max(step, 1)\n    return step / 100", None),  # more than the one statement
        ("return rates[step]", None),
    ],
)
def test_a_warm_up_that_never_ends_in_a_function(make: Any, body: str, capped: str | None) -> None:
    script = f"def factor(step):\n    {body}\n\n\ns = LambdaLR(opt, factor)\n"
    sites = sites_of(script, scheduler="s = LambdaLR(", rates="def factor(step):")
    schedule = {"scheduler": 0, "optimizer": 0, "name": "LambdaLR", "base_lr": 0.001, "made_at": 1, "step": 1}
    process = make.process(sites=sites, more={"schedules": [schedule]})
    found = endless_warmups.endless(process.longest, 0.01)
    assert (found and found.diff and found.diff.added) == (capped and [f"    {capped}"])
    assert found is None or applied(script, found.diff) == script.replace(found.place.source, str(capped))


@pytest.mark.parametrize(
    ("fit", "made", "scaler"),
    [
        ("self.scaler.fit(train[COLUMNS])", "houses = TensorDataset(torch.tensor(rows), y)", "self.scaler"),
        ("scale = StandardScaler().fit(train)", "houses = TensorDataset(torch.from_numpy(rows), y)", "scale"),
    ],
)
def test_a_scaler_that_is_fitted_and_never_used(make: Any, fit: str, made: str, scaler: str) -> None:
    def told(line: str, *more: tuple[str, str, str]) -> Any:
        rows = [("fit", line, "a.py"), ("data", made, "a.py"), *more]
        sites = [
            {"site": at, "role": role, "file": file, "line": 10 * at, "function": "load", "source": source}
            | {"excerpt": source, "excerpt_line": 10 * at}
            for at, (role, source, file) in enumerate(rows, 1)
        ]  # fmt: skip
        return fitted.remedy(make.process(sites=sites))

    found = told(fit)
    assert (found.place.line, f"line 10 fits {scaler}, but no line of a.py" in found.fix) == (20, True)
    assert found.code == f"rows = {scaler}.transform(rows)  # above line 20, of training and validation"
    assert told(fit, ("transforms", "x = scaler.transform(x)", "b.py")) is None
    assert told(fit, ("fit", "self.x_scaler.fit(test)", "a.py")) is None, "which of them"
    assert told("trainer.fit(model)") is None
    assert told("self.y_scaler.fit(demand)") is None, "it scales targets"
