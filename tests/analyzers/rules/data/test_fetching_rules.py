"""Rules about what is noted while batches are made: random numbers that repeat, and memory that grows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.rules.data.augmented_validation import one_dataset
from tracelyze.analyzers.script.editing import generator_seeds
from tracelyze.testing import SITES

MIB = 2**20
TRAIN = {"loader": 0, "dataset": "Photos", "iterable": False, "length": 100, "num_workers": 2, "made_at": 2}
VALIDATION = TRAIN | {"loader": 1, "length": 10, "made_at": 3, "shuffled": False, "num_workers": 0}


def passes(states: list[list[str]], loader: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Passes over a loader; of each the states in which its workers began."""
    return [
        {"loader": loader, "epoch": epoch, "worker": worker, "step": 100 * (epoch + 1), "source": 0, "batches": 50}
        | {"moved": "numpy", "start": state, "second": f"{state}{epoch}{worker}"}
        | more
        for epoch, workers in enumerate(states)
        for worker, state in enumerate(workers)
    ]


def judge(make: Any, rule: str, rows: list[dict[str, Any]], **more: Any) -> Any:
    given = {"fetches": rows} | more.pop("more", {})
    return make.check(rule, make.process(loaders=more.pop("loaders", [TRAIN, VALIDATION]), more=given, **more))


def test_every_epoch_begins_in_the_same_state(make) -> None:
    _, _, finding = judge(make, "augmentation-repeats", passes([["a", "b"]] * 4))
    assert (finding.severity, finding.confidence) == ("warning", "certain")
    assert "numpy.random" in finding.summary
    put_back = passes([["a", "b"], ["c", "d"], ["e", "f"]], second="0")  # seeded while samples are loaded
    assert judge(make, "augmentation-repeats", put_back)[0] == "fired"
    own = passes([["a", "a"]] * 4, moved="own")
    assert "started anew" in judge(make, "augmentation-repeats", own)[2].summary
    assert finding.first_step == 101, "the second pass: what is noted of the first is from its end"


@pytest.mark.parametrize(
    ("generator", "sites", "workers", "code"),
    [
        ("numpy", {}, 2, "np.random.seed(info.seed % 2**32)"),
        ("python", {}, 2, "random.seed(info.seed)"),
        ("torch", {"worker-seed": "torch.manual_seed(3)"}, 2, "torch.manual_seed(info.seed)"),
        ("numpy", {"reseed": "torch.manual_seed(3)"}, 2, "nowhere below it:\ntorch.manual_seed(0)"),  # also of workers
        ("python", {"reseed": "random.seed(3)"}, 0, "nowhere below it:\nrandom.seed(0)"),
        ("own", {}, 0, ""),
    ],
)
def test_the_generator_that_is_drawn_from_is_the_one_to_seed(
    make, generator: str, sites: dict[str, str], workers: int, code: str
) -> None:
    """Where the training process is re-seeded for each epoch, the seeds of its workers repeat with it."""
    lines = [
        {"site": 80 + at, "role": role, "file": "a.py", "line": 80 + at, "function": "f", "source": source}
        for at, (role, source) in enumerate(sites.items())
    ]
    loaders = [TRAIN | {"num_workers": workers}, VALIDATION]
    rows = passes([["a", "b"]] * 4 if workers else [["a"]] * 4, moved=generator)
    rows = rows if workers else [row | {"worker": None} for row in rows]
    finding = judge(make, "augmentation-repeats", rows, loaders=loaders, sites=[*SITES, *lines])[2]
    assert code in finding.fix_code
    assert bool(finding.fix_code) == bool(code)
    if workers and "reseed" not in sites:
        alike = passes([["a", "a"], ["b", "b"]], moved=generator)
        both = judge(make, "duplicate-augmentation", alike, loaders=loaders, sites=[*SITES, *lines])[2]
        assert code in both.fix_code
        assert ("in line 80" in both.fix) == bool(sites)


OWN_SEED = "torch.utils.data.get_worker_info().seed"


def seeding(make: Any, body: list[str], elsewhere: str = "data = torch.load(path)") -> Any:
    """A process whose worker_init_fn has these lines."""
    text = ["def seed_worker(worker_id):", *(f"    {line}" for line in body), "", "", elsewhere]
    site = {"site": 80, "role": "worker-seed", "file": "a.py", "line": 2, "function": "seed_worker", "source": body[0],
            "excerpt": "\n".join(text), "excerpt_line": 1}  # fmt: skip
    alike = {"fetches": passes([["a", "a"], ["b", "b"]])}
    return make.process(loaders=[TRAIN, VALIDATION], more=alike, sites=[*SITES, site])


@pytest.mark.parametrize(
    ("body", "generators", "mended"),
    [
        (["np.random.seed(SEED)"], ["numpy"], [f"np.random.seed({OWN_SEED} % 2**32)"]),
        (["random.seed(SEED)", "np.random.seed(SEED + 1)"], ["numpy"], [f"np.random.seed({OWN_SEED} % 2**32)"]),
        (["random.seed(SEED)", "torch.manual_seed(SEED)"], ["python", "torch"],
         [f"random.seed({OWN_SEED})", f"torch.manual_seed({OWN_SEED})"]),
        (["random.seed(SEED)"], ["numpy", "python"], None),
        (["np.random.seed(SEED)", "np.random.seed(0)"], ["numpy"], None),
        (["set_seeds(SEED)"], ["numpy"], None),
    ],
)  # fmt: skip
def test_seeds_of_workers_in_their_lines(
    make, body: list[str], generators: list[str], mended: list[str] | None
) -> None:
    process = seeding(make, body)
    diff = generator_seeds.in_place(process, process.location("worker-seed"), generators)
    assert ([line.strip() for line in diff.added] if diff else None) == mended


def test_a_seed_is_not_edited_where_torch_may_not_be_known(make) -> None:
    edited = make.check("duplicate-augmentation", seeding(make, ["np.random.seed(SEED)"]))[2]
    assert edited.fix_code == edited.diff.added[0].strip() == f"np.random.seed({OWN_SEED} % 2**32)"
    other = make.check("duplicate-augmentation", seeding(make, ["np.random.seed(SEED)"], "x = np.load(path)"))[2]
    assert other.diff is None
    assert "def worker_init_fn" in other.fix_code


@pytest.mark.parametrize(
    "rows",
    [
        passes([["a", "b"], ["c", "d"], ["e", "f"]]),  # goes on
        passes([["", ""]] * 4, moved="", start="", second=""),  # no augmentation
        [*passes([["a", "b"]]), *passes([["", ""]] * 3, moved="", start="", second="")],  # kept from the first epoch
        passes([["a", "b"], ["a", "b"], ["c", "d"]]),  # begun anew once
    ],
)
def test_random_numbers_that_do_not_repeat(make, rows) -> None:
    assert judge(make, "augmentation-repeats", rows)[0] == "passed"


def test_augmentation_that_need_not_differ(make) -> None:
    assert judge(make, "augmentation-repeats", passes([["a"]] * 4, loader=1))[0] == "skipped"  # validation
    assert judge(make, "augmentation-repeats", passes([["a", "b"]] * 2))[0] == "skipped"
    streams = [TRAIN | {"iterable": True}, VALIDATION]
    assert judge(make, "augmentation-repeats", passes([["a", "b"]] * 4), loaders=streams)[0] == "skipped"


def test_workers_in_the_same_state(make) -> None:
    _, _, finding = judge(make, "duplicate-augmentation", passes([["a", "a"], ["b", "b"]]))
    assert finding.title == "2 workers draw the same random numbers for Photos"
    for rows in (passes([["a", "b"], ["c", "d"]]), passes([["a", "a"], ["c", "d"]]), passes([["", ""]], moved="")):
        assert judge(make, "duplicate-augmentation", rows)[0] == "passed"
    assert judge(make, "duplicate-augmentation", passes([["a"], ["a"]]))[0] == "skipped"


def test_a_generator_that_workers_copy_is_replaced_at_the_loader(make) -> None:
    """Where it draws, nothing is to change; the line is shown beside it, and the one that makes it is named."""
    draws = {"site": 9, "role": "draws", "file": "photos.py", "line": 30, "function": "__getitem__"}
    makes = draws | {"site": 10, "role": "seed", "line": 12, "function": "__init__", "source": "self.rng = Random(3)"}
    sites = [*SITES, draws | {"source": "angle = self.rng.uniform(-9, 9)"}, makes]
    rows = passes([["a", "a"], ["b", "b"]], moved="own")
    _, _, finding = judge(make, "duplicate-augmentation", rows, sites=sites)
    assert (finding.location.line, finding.seen_at.line) == (SITES[1]["line"], 30)
    assert "Line 12 makes it: self.rng = Random(3). Line 30 draws" in finding.summary


@pytest.mark.parametrize(
    ("makes", "seeded"),
    [
        ("self.rng = np.random.default_rng(seed)", "info.dataset.rng = np.random.default_rng(info.seed)"),
        ("self.rng = np.random.RandomState(7)", "info.dataset.rng = np.random.RandomState(info.seed % 2**32)"),
        ("self.rng = Random(seed)", "info.dataset.rng = Random(info.seed)"),
        ("self.rng = self.of(Random(seed))", None),  # what else it takes is not known there
        ("self.other = Random(seed)", None),
    ],
)
def test_workers_make_their_generator_as_the_script_does(make, makes: str, seeded: str | None) -> None:
    place = {"site": 9, "file": "photos.py"}
    sites = [
        *SITES,
        place | {"role": "draws", "line": 30, "function": "__getitem__", "source": "angle = self.rng.uniform(-9, 9)"},
        place | {"site": 10, "role": "seed", "line": 12, "function": "__init__", "source": makes},
    ]
    rows = passes([["a", "a"], ["b", "b"]], moved="own")
    code = judge(make, "duplicate-augmentation", rows, sites=sites)[2].fix_code
    assert (f"    {seeded}  # as line 12 makes it" in code) == bool(seeded)
    assert ("of its kind" in code) != bool(seeded), "the kinds are listed where it is not known"


@pytest.mark.parametrize(
    ("makes", "remade"),
    [
        ("self.rng = np.random.default_rng(seed)", "np.random.default_rng(seed)"),
        ("self.rng = np.random.RandomState(7)", "np.random.RandomState(seed % 2**32)"),
        ("self.rng = torch.Generator().manual_seed(seed + 1)", "torch.Generator().manual_seed(seed)"),
        ("self.other = np.random.default_rng(seed)", None),
    ],
)
def test_a_generator_that_workers_of_a_trainer_copy_is_made_in_each(make, makes: str, remade: str | None) -> None:
    """A trainer hands no worker_init_fn to the loader that it makes."""
    place = {"site": 9, "file": "photos.py"}
    trains = place | {"function": "main", "line": 90, "source": "trainer.train()"}
    sites = [
        *(trains | {"site": number, "role": role} for number, role in ((2, "dataloader"), (5, "step"))),
        place | {"site": 8, "role": "seed", "line": 12, "function": "__init__", "source": makes},
        place | {"role": "draws", "line": 30, "function": "__getitem__", "source": "angle = self.rng.uniform(-9, 9)"},
    ]
    rows = passes([["a", "a"], ["b", "b"]], moved="own")
    _, _, finding = judge(make, "duplicate-augmentation", rows, sites=sites)
    assert finding.location.line == (12 if remade else 30)
    assert "worker_init_fn" not in finding.fix_code
    expected = f"self._seed, self._rng = seed, {remade}" if remade else "torch.randint"
    assert expected in finding.fix_code


@pytest.mark.parametrize(("first", "status"), [(["a", "a"], "fired"), (["a", "b"], "passed")])
def test_workers_that_stay_are_compared_in_their_first_pass(make, first: list[str], status: str) -> None:
    """worker_init_fn runs once in each of them; one of them then draws for a batch more than the other."""
    rows = passes([first, ["c", "d"], ["e", "f"]])
    stay = [TRAIN | {"persistent_workers": True}, VALIDATION]
    assert judge(make, "duplicate-augmentation", rows, loaders=stay)[0] == status


def looks(contents: list[str], **more: Any) -> list[dict[str, Any]]:
    """Batches of the validation loader, pass by pass."""
    return [
        {"loader": 1, "epoch": epoch, "batch": place, "field": "0", "dtype": "float32", "shape": "8x3x4x4"}
        | {"prints": "p q", "print": f"{content}{place}", "trained": False}
        | more
        for epoch, content in enumerate(contents)
        for place in range(4)
    ]


BOTH = [*passes([["a", "b"], ["c", "d"]]), *passes([["e"], ["f"]], loader=1)]


def test_validation_that_is_augmented(make) -> None:
    _, _, finding = judge(make, "augmented-validation", BOTH, more={"batches": looks(["x", "y", "z"])})
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert "one dataset object" in finding.summary
    other = [row | {"source": row["loader"]} for row in BOTH]
    assert judge(make, "augmented-validation", other, more={"batches": looks(["x", "y"])})[0] == "fired"
    assert judge(make, "augmented-validation", BOTH)[0] == "fired"  # one dataset object for both


@pytest.mark.parametrize(
    ("made", "plain"),
    [
        ("everything = Photos(path, transform=flips)", "Photos(path, transform=plain_transform)"),
        ("everything = Photos(path, augment=True)", "Photos(path, augment=False)"),
        ("everything = Photos(path, flips)", None),  # which argument changes the samples is not known
        ("other = Photos(path, transform=flips)", None),
    ],
)
def test_the_line_that_splits_one_augmented_dataset(make, made: str, plain: str | None) -> None:
    split = "train_set, val_set = random_split(everything, [0.9, 0.1])"
    text = {"file": "train.py", "function": "main", "excerpt_line": 20, "excerpt": f"    {made}\n    {split}"}
    lines = [("data", 20, made), ("split", 21, split)]
    sites = [text | {"site": at, "role": role, "line": at, "source": source} for role, at, source in lines]
    finding = judge(make, "augmented-validation", BOTH, more={"batches": looks(["x", "y"])}, sites=sites)[2]
    assert finding.location.line == 21
    own = f"val_set = Subset({plain}, val_set.indices)"
    assert (own in finding.fix_code) if plain else ("make_dataset(plain_transform)" in finding.fix_code)
    named = {"site": 9, "role": "data", "line": 19, "source": "test_set = Photos(path, transform=plain)"}
    beside = judge(make, "augmented-validation", BOTH, more={"batches": looks(["x", "y"])}, sites=[*sites, named])[2]
    assert beside.location.line == 21, "another object, which is tested on, is none that both share"
    other = [row | {"source": row["loader"]} for row in BOTH]
    apart = judge(make, "augmented-validation", other, more={"batches": looks(["x", "y"])}, sites=sites)[2]
    assert (apart.location, "make_dataset" in apart.fix_code) == (None, True), "two objects: no split made them"


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        ('"val": Photos(images[:9], labels),', '"val": Photos(images[:9], labels, augment=False),'),
        ("val_set = Photos(images, labels, augment=True)", "val_set = Photos(images, labels, augment=False)"),
        ("val_set = Photos(images, labels, True)", None),
        ("val_set = Photos(*parts)", None),
        ("val_set = Photos(images, labels, **options)", None),
        ("val_set = Photos(", None),
    ],
)
def test_a_validation_set_whose_class_augments_by_default(make, line: str, repaired: str | None) -> None:
    own = {
        "role": "augmented",
        "line": 5,
        "function": "__init__",
        "name": "augment",
        "own_name": "Photos",
        "value": "2",
    }
    made = {"site": 7, "role": "data", "line": 21, "function": "main", "source": line}
    text = {"file": "train.py", "excerpt_line": 21, "excerpt": f"    {line}"}
    apart = [row | {"source": row["loader"]} for row in BOTH]
    photos = [TRAIN | {"dataset": "Photos"}, VALIDATION | {"dataset": "Photos"}]

    def judged(*sites: dict[str, Any]) -> Any:
        more = {"batches": looks(["x", "y"])}
        return judge(make, "augmented-validation", apart, more=more, loaders=photos, sites=list(sites))[2]

    finding = judged(own | {"site": 8, "file": "train.py"}, made | text)
    assert finding.location.line == 21
    assert (finding.diff.added[0].strip() if finding.diff else None) == repaired
    assert "split the indices" not in finding.fix, "two objects: nothing is split"
    if repaired:
        assert "augment=False in line 21" in finding.fix
    assert judged(made | text).diff is None


@pytest.mark.parametrize(
    ("given", "read", "line"),
    [
        ("held_out = noisy if shared else Photos(path)", "Subset(held_out, range(80, 100))", 20),
        ("held_out = noisy if shared else Photos(path)", "held_out", 20),
        ("photos = Photos(path, transform=flips)", "Subset(photos, range(80, 100))", 22),  # both read it
    ],
)
def test_the_line_that_gives_validation_the_dataset_of_training(make, given: str, read: str, line: int) -> None:
    made = f"val_loader = DataLoader({read}, batch_size=8)"
    text = {"file": "train.py", "function": "main", "excerpt_line": 20}
    text |= {"excerpt": f"    {given}\n    train_loader = DataLoader(photos)\n    {made}"}
    sites = [
        text | {"site": 9, "role": "data", "line": 20, "source": given},
        text | {"site": VALIDATION["made_at"], "role": "dataloader", "line": 22, "source": made},
    ]
    finding = judge(make, "augmented-validation", BOTH, more={"batches": looks(["x", "y"])}, sites=sites)[2]
    assert finding.location.line == line


def test_a_part_by_a_sampler_gets_a_dataset_of_its_own(make) -> None:
    made, loader = "photos = Photos(path, transform=flips)", "val = DataLoader(photos, sampler=held)"
    text = {"file": "train.py", "function": "main", "excerpt_line": 20, "excerpt": f"    {made}\n    {loader}"}
    sites = [text | {"site": 20 + at, "line": 20 + at, "source": one} for at, one in enumerate((made, loader))]
    sites = [one | {"role": role} for one, role in zip(sites, ("data", "dataloader"), strict=True)]
    named = {
        "site": 22,
        "role": "data",
        "file": "train.py",
        "line": 22,
        "source": "test = Photos(path, transform=plain)",
    }
    process = make.process(sites=[*sites, named | {"function": "main"}])
    place = process.site(21)
    plain = "plain = Photos(path, transform=plain_transform)\nval = DataLoader(plain, sampler=held)"
    assert one_dataset.example(process, "Photos", place).startswith(plain)
    assert one_dataset.example(process, "Others", place) == one_dataset.EXAMPLE


@pytest.mark.parametrize(
    ("rows", "contents"),
    [
        ([*passes([["a", "b"]]), *passes([[""]], loader=1, moved="", start="", second="")], ["x", "x"]),
        (BOTH, ["x", "x", "x"]),  # draws that change nothing
        ([*passes([["", ""]], moved="", start="", second=""), *passes([["e"], ["f"]], loader=1)], ["x", "y"]),
    ],
)
def test_validation_that_is_as_it_was(make, rows, contents) -> None:
    assert judge(make, "augmented-validation", rows, more={"batches": looks(contents)})[0] == "passed"


PICTURE, MASK = {"mean": 0.1, "std": 1.0}, {"mean": 0.2, "std": 0.4, "field": "1"}


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (looks(["x", "y", "z"], **PICTURE), looks(["x", "y", "z"], **MASK), "fired"),  # flipped together
        (looks(["x", "y", "z"], **PICTURE), looks(["x", "x", "x"], **MASK), "passed"),  # noise that is to be removed
        (looks(["x", "x", "x"], **PICTURE), looks(["x", "y", "z"], **MASK), "passed"),  # what is hidden is drawn
        (looks(["x", "y", "z"], **PICTURE), looks(["x", "y", "z"], **PICTURE | {"field": "1"}), "passed"),  # two views
        (looks(["x", "y", "z"], **PICTURE), looks(["x", "y", "z"], **MASK, shape="8x1x2x2"), "fired"),
    ],
)
def test_targets_of_the_shape_of_the_input(make, first, second, status) -> None:
    assert judge(make, "augmented-validation", BOTH, more={"batches": [*first, *second]})[0] == status


@pytest.mark.parametrize(
    ("labels", "shape", "status"),
    [
        (["x", "y", "z"], "8", "passed"),
        (["x", "y", "z"], "8x4", "passed"),  # a word for each picture
        (["x", "x", "x"], "8", "fired"),
        (["x", "y", "z"], "8x4x4", "fired"),  # masks that are flipped with the picture
    ],
)
def test_samples_that_are_made_anew_have_other_labels(make, labels, shape, status) -> None:
    integers = looks(labels, field="1", dtype="int64", shape=shape, prints=None)
    assert (
        judge(make, "augmented-validation", BOTH, more={"batches": [*looks(["x", "y", "z"]), *integers]})[0] == status
    )


def test_noise_and_repetition_that_are_meant(make) -> None:
    pairs = [*looks(["x", "y"]), *looks(["x", "x"], field="1")]  # a noisy input with the clean one
    assert judge(make, "augmented-validation", BOTH, more={"batches": pairs})[0] == "passed"
    evals = make.evals()
    twice = {name: [value for value in values for _ in range(2)] for name, values in evals.items()}
    status, reason, _ = judge(make, "augmented-validation", BOTH, evals=twice, more={"batches": looks(["x", "y"])})
    assert (status, "test time" in reason) == ("passed", True)
    other = [row | {"source": row["loader"]} for row in BOTH]
    assert judge(make, "augmented-validation", other)[0] == "skipped"


def memory(readings: list[float], epochs: int = 2, batches: int = 40) -> list[dict[str, Any]]:
    text = json.dumps([int(value * MIB) for value in readings])
    return passes([["", ""]] * epochs, moved="", memory=text, batches=batches)


def test_workers_that_keep_what_they_read(make) -> None:
    _, _, finding = judge(make, "host-memory-leak", memory([10, 12, 14, 22, 38, 70]))
    assert (finding.severity, finding.location.line) == ("warning", 30)
    assert finding.title == "Memory of 2 loader workers grows with every batch: 112 MiB so far"
    late = judge(make, "host-memory-leak", memory([10, 12, 40, 42, 46, 54, 70, 102]))
    assert late[0] == "fired", "a leap at the start, and a leak"


@pytest.mark.parametrize(
    "rows",
    [
        memory([10, 12, 12, 12.5, 13, 13]),  # buffers
        memory([10, 12, 14, 60, 60, 60]),  # a cache that is full
        memory([10, 12, 14, 22, 38, 70], epochs=1),  # and one that fills in the first pass
        memory([100, 180, 182, 184, 188, 192]),  # a few MiB of many
        memory([10, 12, 14, 15, 16, 50]),  # a garbage collection that copies the pages that they shared
        memory([16.7, 17.4, 18, 38.4, 38.7, 39.4, 39.6, 40]),  # one of long ago, and a little noise since
    ],
)
def test_workers_that_settle(make, rows) -> None:
    assert judge(make, "host-memory-leak", rows)[0] == "passed"


def climbing(make: Any, pace: float) -> dict[str, Any]:
    steps: dict[str, Any] = make.steps() | {"host_rss": (500e6 + pace * np.arange(400)).astype(int).tolist()}
    return steps


@pytest.mark.parametrize(("dense_first", "leaks"), [(True, True), (False, True), (None, False)])
def test_a_leak_of_so_much_a_step_is_even_however_often_memory_is_read(make, dense_first, leaks) -> None:
    """It is read every few milliseconds: at each step while they are slow, at every fifth while they are fast."""
    grown = 500e6 + 1e6 * np.minimum(np.arange(400), 400 if leaks else 200)
    every = [5 if dense_first == (step >= 200) else 1 for step in range(400)]
    read = [int(value) if step % every[step] == 0 else None for step, value in enumerate(grown)]
    status = make.check("host-memory-leak", make.process(make.steps() | {"host_rss": read}))[0]
    assert status == ("fired" if leaks else "passed")


def test_host_memory_that_climbs_beyond_the_first_epoch(make) -> None:
    _, _, finding = make.check("host-memory-leak", make.process(climbing(make, 1e6)))
    assert finding.location is None
    kept = {
        "site": 9,
        "role": "kept",
        "file": "train.py",
        "line": 12,
        "function": "__getitem__",
        "source": "self.a[i] = x",
    }
    _, _, named = make.check("host-memory-leak", make.process(climbing(make, 1e6), sites=[*SITES, kept]))
    assert named.location.line == 12
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert make.check("host-memory-leak", make.process(climbing(make, 1e5)))[2].confidence == "possible"
    acting = {"loss_graphs": [{"step": 1, "weights": 8, "weights_negative": 0.5}]}
    replay = make.process(climbing(make, 1e5), more=acting)
    assert make.check("host-memory-leak", replay)[0] == "passed", "a replay buffer that fills"
    assert make.check("host-memory-leak", make.process(climbing(make, 1e6), more=acting))[0] == "fired"
    fills = {"site": 9, "role": "fills", "file": "a.py", "line": 4, "function": "store", "source": "memory.append(s)"}
    bounded = make.process(climbing(make, 1e6), sites=[*SITES, fills])
    assert make.check("host-memory-leak", bounded)[0] == "passed", "one of bounded length"
    both = make.process(climbing(make, 1e6), sites=[*SITES, fills, fills | {"site": 10, "role": "grows", "line": 6}])
    assert make.check("host-memory-leak", both)[0] == "fired"
    assert make.check("memory-leak", make.process(climbing(make, 1e6)))[0] == "passed"
    one_epoch = [{"loader": 0, "dataset": "Cached", "length": 400, "num_workers": 0}]
    assert make.check("host-memory-leak", make.process(climbing(make, 1e6), loaders=one_epoch))[0] == "passed"
    graphs = climbing(make, 1e6) | {"live_graphs": list(range(1, 401))}
    assert make.check("host-memory-leak", make.process(graphs))[0] == "passed"
    pages = {"time": [0.0, 20.0], "host_rss": [5e8, 9e8], "host_files": [1e8, 4.9e8]}
    assert make.check("host-memory-leak", make.process(climbing(make, 1e6), samples=pages))[0] == "passed"


@pytest.mark.parametrize(
    ("each", "second", "line"),
    [
        (
            8,
            "module.register_forward_hook(once)",
            12,
        ),  # of two lines, the one that registers those which are there most
        (8, "module.register_forward_hook(probe)", None),
        (0.1, "module.register_forward_hook(once)", None),  # too few
    ],
)
def test_hooks_that_pile_up_take_memory(make, each: float, second: str, line: int | None) -> None:
    hooks = [
        {"time": float(at), "step": 80 * at, "kind": "hooks", "value": each * (80 * at + 1), "name": "<lambda>"}
        | {"file": "train.py", "line": 11, "source": "probe = lambda *given: seen(given, scale)"}
        for at in range(6)
    ]  # fmt: skip
    rows = [(12, "handle = module.register_forward_hook(probe)", "forward"), (40, second, "attach")]
    sites = [
        {"site": 90 + at, "role": "module-hook", "file": "train.py", "line": at, "function": name, "source": text}
        | {"excerpt_line": at, "excerpt": f"    {text}"}
        for at, text, name in rows
    ]  # fmt: skip
    process = make.process(climbing(make, 1e5), sites=[*SITES, *sites], more={"events": hooks})
    finding = make.check("host-memory-leak", process)[2]
    assert (finding.location and finding.location.line) == line
    assert ("number of hooks" in finding.summary, finding.confidence) == (
        (True, "likely") if each > 1 else (False, "possible")
    )
    if line:
        assert "\nhandles.append(module.register_forward_hook(probe))  # each" in finding.fix_code


def test_a_metric_that_keeps_what_it_is_given_is_reset(make) -> None:
    line = "self.auc.update(scores, target.long())"
    grows = {"site": 9, "role": "grows", "file": "a.py", "line": 4, "function": "observe", "source": line}
    grows |= {"excerpt": f"        {line}", "excerpt_line": 4}
    finding = make.check("host-memory-leak", make.process(climbing(make, 1e6), sites=[*SITES, grows]))[2]
    assert finding.location.line == 4
    assert "hands `self.auc` something that it keeps until it is reset" in finding.fix
    assert finding.fix_code.endswith("self.auc.reset()")


@pytest.mark.parametrize(
    ("line", "edited"),
    [
        ("@lru_cache(maxsize=None)", "@lru_cache(maxsize=128)"),
        ("@functools.lru_cache(None)", "@functools.lru_cache(maxsize=128)"),
        ("@functools.cache", "@functools.lru_cache(maxsize=128)"),
        ("@cache", None),  # a name that the file has not imported
    ],
)
def test_a_cache_without_a_bound_gets_one(make, line: str, edited: str | None) -> None:
    caches = {"site": 9, "role": "caches", "file": "a.py", "line": 4, "function": "features", "source": line}
    caches |= {"excerpt": f"    {line}\n    def features(self, i):", "excerpt_line": 4}
    finding = make.check("host-memory-leak", make.process(climbing(make, 1e6), sites=[*SITES, caches]))[2]
    assert finding.location.line == 4
    assert f"`{line}` keeps the results of features" in finding.summary
    assert (finding.diff.added if finding.diff else None) == ([f"    {edited}"] if edited else None)


@pytest.mark.parametrize(
    ("drawn", "call", "new", "found", "passed", "fires"),
    [
        ("start = rng.integers(9000)", "self.cut(i, start)", "start", 0.0, 1.0, True),
        ("flip = rng.integers(2)", "self.cut(i, flip)", "i", 0.0, 1.0, False),  # what is drawn comes again
        ("start = rng.integers(9000)", "self.cut(i, 0) + start", "i", 0.0, 1.0, False),  # the key is the sample
        ("start = rng.integers(400)", "self.cut(0, start)", "start", 0.3, 1.0, False),  # drawn samples come again
        ("start = rng.integers(9000)", "self.cut(0, start)", "start", 0.05, 0.3, False),  # or will
    ],
)
def test_a_cache_whose_key_is_drawn_grows_in_the_first_pass_too(
    make, drawn: str, call: str, new: str, found: float, passed: float, fires: bool
) -> None:
    caches = {"site": 9, "role": "caches", "file": "a.py", "line": 4, "function": "cut", "source": "@cache"}
    caches |= {"excerpt": "    @cache\n    def cut(self, i, start):", "excerpt_line": 4}
    draws = {"site": 10, "role": "draws", "file": "a.py", "line": 12, "function": "__getitem__", "source": drawn}
    draws |= {"excerpt": f"        {drawn}\n        return {call}", "excerpt_line": 12}
    event = {"time": 1.0, "step": 400, "kind": "cache", "name": "cut", "text": new, "value": found}
    event |= {"file": "a.py", "line": 4}
    loaders = [{"loader": 0, "dataset": "Cached", "length": int(400 / passed), "num_workers": 0}]
    more = {"events": [event]}
    sites = [*SITES, caches, draws]
    outcome = make.check("host-memory-leak", make.process(climbing(make, 1e6), sites=sites, loaders=loaders, more=more))
    assert outcome[0] == ("fired" if fires else "passed")
    if fires:
        assert "in the first pass over the data" in outcome[2].summary
        assert "Line 12 draws its argument `start` anew for each sample: only 0%" in outcome[2].summary


CACHE = """\
    def features(self, i, start):
        key = (i, start)
        {asks}
            {line}
        return {read}"""


@pytest.mark.parametrize(
    ("asks", "line", "read", "edited", "said"),
    [
        ("if key not in self.cache:", "self.cache[key] = cut(i)", "self.cache[key]", True, "bound it, or use a key"),
        ("if self.cache.get(key) is None:", "self.cache[key] = cut(i)", "self.cache.get(key)", True, "bound it"),
        ("if key not in self.cache:", "self.cache[key] = cut(i)", "cut(i)", False, "bound it, or use a key"),
        ("for one in self.cache:", "self.cache[key] = cut(i)", "self.cache[key]", False, "bound it, or use a key"),
        ("if key:", "self.seen.append(cut(i))", "self.seen[-1]", False, "Keep the last ones alone"),
        ("if key:", "self.put(cut(i))", "cut(i)", False, "Look for a list, dictionary or cache"),
    ],
)
def test_the_line_that_grows_is_bounded(make, asks: str, line: str, read: str, edited: bool, said: str) -> None:
    """A cache computes what is missing anew, so that entries may go; what else a list is for is not known."""
    excerpt = CACHE.format(asks=asks, line=line, read=read)
    kept = {"site": 9, "role": "kept", "file": "a.py", "line": 4, "function": "features", "source": line}
    kept |= {"excerpt": excerpt, "excerpt_line": 1}
    finding = make.check("host-memory-leak", make.process(climbing(make, 1e6), sites=[*SITES, kept]))[2]
    assert said in finding.fix
    added = [one.strip() for one in finding.diff.added] if finding.diff else []
    bound = [
        "while len(self.cache) >= len(self):  # no more entries than samples: the oldest one goes",
        "self.cache.pop(next(iter(self.cache)))",
    ]
    assert added == (bound if edited else [])
    assert ("del self.seen[:-100]" in finding.fix_code) == ("append" in line)
