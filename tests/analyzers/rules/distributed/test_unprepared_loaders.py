"""same-data-on-every-rank where Accelerate or Fabric wraps the model and is not given the loader."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.distributed.same_data_on_every_rank import unprepared

PREPARES = "model, optimizer, val_loader = acc.prepare(model, optimizer, val_loader)"


def found(
    make: Any,
    line: str,
    reads: str = "for x, y in train_loader:",
    function: str = "run",
    sampler: str = "RandomSampler",
    made: str = "",
) -> Any:
    place = {"file": "train.py", "function": "run"}
    sites = [
        place | {"site": 1, "role": "module", "line": 97, "source": line, "excerpt": line, "excerpt_line": 97},
        place | {"site": 2, "role": "loader", "line": 101, "source": reads, "function": function},
    ]
    if made:
        sites.append(place | {"site": 6, "role": "dataloader", "line": 90, "source": made})
    modules = [{"model": 0, "module": "", "kind": "DistributedDataParallel", "made_at": 1}]
    modules += [{"model": 0, "module": "module", "kind": "Net", "made_at": 5}]
    process = make.process(sites=sites, more={"modules": modules})
    return unprepared.of(process, {"loader": 0, "site": 2, "sampler": sampler, "made_at": 6 if made else None})


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            PREPARES,
            "model, optimizer, val_loader, train_loader = acc.prepare(model, optimizer, val_loader, train_loader)",
        ),
        ("model = acc.prepare(model)", "train_loader = acc.prepare(train_loader)  # below line 97"),
        (
            "self.model, self.optimizer = self.fabric.setup(net, optimizer)",
            "train_loader = self.fabric.setup_dataloaders(train_loader)  # below line 97",
        ),
    ],
)
def test_the_line_that_is_not_given_the_loader(make: Any, line: str, code: str) -> None:
    left = found(make, line)
    assert (left.line.line, left.code) == (97, code)


def test_in_another_function_the_name_may_be_another(make: Any) -> None:
    left = found(make, PREPARES, "for step, batch in enumerate(self.loader):", "fit")
    assert left.code == "self.loader = acc.prepare(self.loader)  # below line 97"


MAKES = "batches = DataLoader(data, batch_size=32, shuffle=True)"


@pytest.mark.parametrize(
    ("made", "reads", "name"),
    [
        (MAKES, "for x, y in loader:", "batches"),
        (f"return {MAKES.partition(' = ')[2]}", "for x, y in loader:", "loader"),
        (MAKES, "for x, y in self.loader:", "self.loader"),  # which was handed over before, perhaps
    ],
)
def test_the_loader_has_the_name_of_the_line_that_makes_it(make: Any, made: str, reads: str, name: str) -> None:
    left = found(make, PREPARES, reads, "epoch", made=made)
    if name == "batches":
        assert left.code.endswith("acc.prepare(model, optimizer, val_loader, batches)")
    else:
        assert left.code == f"{name} = acc.prepare({name})  # below line 97"
    assert found(make, PREPARES.replace("val_loader", "batches"), "for x, y in loader:", "epoch", made=MAKES) is None


@pytest.mark.parametrize(
    "line", ["model, train_loader = acc.prepare(model, train_loader)", "model = DistributedDataParallel(model)"]
)
def test_none_where_it_is_given_or_torch_wraps_the_model(make: Any, line: str) -> None:
    assert found(make, line) is None


def test_none_where_a_sampler_is_to_divide_the_data(make: Any) -> None:
    assert found(make, PREPARES, sampler="DistributedSampler") is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "self.feed = DataLoader(self.cards, 8, shuffle=True, num_workers=2)",
            (
                "sampler = DistributedSampler(self.cards, shuffle=True)\n"
                "self.feed = DataLoader(self.cards, 8, num_workers=2, sampler=sampler)\n"
            ),
        ),
        ("feed = DataLoader(cards, batch_sampler=own)", "DataLoader(dataset, batch_size=batch_size, sampler=sampler)"),
    ],
)
def test_the_loader_keeps_what_it_is_given_beside_the_sampler(make: Any, line: str, code: str) -> None:
    site = {"site": 4, "role": "dataloader", "file": "t.py", "line": 9, "function": "main", "source": line}
    process = make.process(sites=[site | {"excerpt": line, "excerpt_line": 9}])
    loader = {"loader": 0, "made_at": 4, "batch_size": 8, "sampler": "RandomSampler"}
    assert code in unprepared.divided(process, loader, by_hand=False)[2]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("main", "    sampler.set_epoch(epoch)"),
        ("train", "train.sampler.set_epoch(epoch)  # the first line in the loop"),
    ],
)
def test_a_loop_in_another_function_reaches_the_sampler_through_the_loader(make: Any, function: str, told: str) -> None:
    line = "train = DataLoader(cards, 8, shuffle=True)"
    site = {"site": 4, "role": "dataloader", "file": "t.py", "line": 9, "function": "main", "source": line}
    loop = {"site": 5, "role": "loader", "file": "t.py", "line": 30, "function": function}
    loop |= {"source": "for i, (x, y) in enumerate(train):"}
    process = make.process(sites=[site | {"excerpt": line, "excerpt_line": 9}, loop])
    loader = {"loader": 0, "made_at": 4, "site": 5, "batch_size": 8, "sampler": "RandomSampler"}
    assert f"\n{told}" in unprepared.divided(process, loader, by_hand=False)[2]
