"""Timesteps are recognised by name, dtype and shape; schedules by what the functions of the program hold."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracelyze.collectors.signals.model import noise_schedules, timesteps, timesteps_inside  # noqa: E402


class Denoiser(nn.Module):
    def forward(self, x: Any, t: Any, label: Any = None) -> Any:
        return x


class Diffusion:
    def __init__(self, steps: int) -> None:
        self.alpha_bars = torch.linspace(1, 0.01, steps)
        self.model = Denoiser()

    def found(self) -> set[int]:
        return noise_schedules.lengths(self.model)


def test_which_argument_holds_timesteps() -> None:
    x, t = torch.randn(6, 3), torch.randint(0, 50, (6,))
    find = timesteps._timesteps
    assert find(torch, Denoiser(), (x, t), {})[0] == "t"
    assert find(torch, Denoiser(), (x,), {"t": t})[0] == "t"
    assert find(torch, Denoiser(), (x,), {"label": t}) is None, "classes"
    assert find(torch, Denoiser(), (torch.zeros(6, 3, dtype=torch.int64), t), {}) is None, "ids of tokens"
    assert find(torch, Denoiser(), (x, t.float() / 50), {}) is None, "continuous time"
    assert find(torch, Denoiser(), (x, t[:, None].expand(6, 4)), {}) is None, "ids of tokens"
    assert timesteps._unwrapped(nn.DataParallel(Denoiser())).__class__ is Denoiser


# In functions without assert: what pytest makes of one reads locals(), and such functions are left alone.
def beside_a_schedule(model: Any) -> tuple[set[int], Any]:
    betas, alphas = torch.linspace(1e-4, 0.02, 70), torch.ones(5)  # the second one is too short
    found, gone = noise_schedules.lengths(model), weakref.ref(betas)
    del betas, alphas
    return found, gone()


def beside_locals(model: Any) -> dict[str, Any]:
    sigmas = torch.ones(30)
    held = locals()
    noise_schedules.lengths(model)
    return held if len(sigmas) == 30 else {}


def test_schedules_of_functions_objects_and_models() -> None:
    assert beside_a_schedule(Denoiser()) == ({70}, None), "and nothing is kept alive"
    assert Diffusion(90).found() == {90}
    model = Denoiser()
    model.register_buffer("sigmas", torch.ones(80))
    assert timesteps._range(torch, model) == ("schedule", 80)
    model.register_buffer("betas", torch.ones(40))
    assert timesteps._range(torch, model) == ("schedule", 0), "two that disagree"
    assert "sigmas" in beside_locals(Denoiser()), "its dictionary is the program's"


class Holder:
    """An object that keeps its schedule in another one, of its own or as a module."""

    def __init__(self, steps: int, as_module: bool) -> None:
        self.schedule: Any = nn.Module() if as_module else Diffusion(steps)
        if as_module:
            self.schedule.register_buffer("betas", torch.linspace(1e-4, 0.02, steps))
        self.model = Denoiser()

    def found(self) -> set[int]:
        return noise_schedules.lengths(self.model)


class Whole(nn.Module):
    """A module that holds the schedule in one of its parts, and calls the denoiser in another."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = nn.Module()
        self.noise.register_buffer("alpha_bars", torch.ones(90))
        self.denoiser = Denoiser()

    def found(self) -> set[int]:
        return noise_schedules.lengths(self.denoiser)


def test_schedules_within_objects_of_objects() -> None:
    assert Holder(90, as_module=False).found() == {90}
    assert Holder(90, as_module=True).found() == {90}
    assert Whole().found() == {90}
    nearer = Holder(90, as_module=False)
    nearer.betas = torch.ones(50)  # type: ignore[attr-defined]
    assert nearer.found() == {50}, "what is held closer by is the one in use"


class Formula:
    """A schedule that is computed: a number of timesteps alone says how many there are."""

    def __init__(self, **numbers: Any) -> None:
        vars(self).update(numbers)
        self.model = Denoiser()

    def found(self) -> tuple[str, int]:
        return timesteps._range(torch, self.model)


def test_numbers_of_timesteps_where_no_schedule_is_held() -> None:
    assert Formula(T=400).found() == ("number", 400)
    assert Formula(num_train_timesteps=400, total_timesteps=9000, time_steps=400).found() == ("number", 400)
    assert Formula(T=400, timesteps=50).found()[1] == 0, "two that disagree"
    assert Formula(T=4.0, steps=400, num_steps=400, t=30, T_max=400, timesteps=4).found()[1] == 0, "of something else"
    assert Formula(T=400, betas=torch.ones(90)).found() == ("schedule", 90)
    assert Formula(cfg=Formula(diffusion_steps=300)).found() == ("number", 300)


def test_tables_of_timesteps() -> None:
    model = nn.ModuleDict({"time": nn.Embedding(60, 2), "label": nn.Embedding(1000, 2)})
    assert timesteps._range(torch, model) == ("embedding", 60)
    assert timesteps._range(torch, nn.ModuleDict({"label": nn.Embedding(60, 2)})) == ("embedding", 0)
    nested = nn.ModuleDict({"inner": nn.ModuleDict({"t": nn.Embedding(60, 2)}), "text": nn.Embedding(90, 2)})
    assert timesteps._range(torch, nested) == ("embedding", 60)


def test_products_of_alphas_are_schedules() -> None:
    for name in ("abar", "a_bar", "alphas_cumprod", "snr"):
        model = Denoiser()
        model.register_buffer(name, torch.ones(80))
        assert timesteps._range(torch, model) == ("schedule", 80)
    model = Denoiser()
    model.register_buffer("data_bar", torch.ones(80))
    assert timesteps._range(torch, model) == ("embedding", 0)


class Drawing(nn.Module):
    """Draws timesteps in its own forward, and gives them to a table, a network, or both."""

    def __init__(self, inner: nn.Module | None = None, steps: int = 60) -> None:
        super().__init__()
        self.time_table, self.inner, self.betas = nn.Embedding(steps, 3), inner, torch.ones(steps)

    def forward(self, x: Any) -> Any:
        t = torch.randint(5, 9, (len(x),))
        x = x + self.time_table(t)
        return self.inner(x, t) if self.inner is not None else x


def looked_inside(model: nn.Module, x: Any) -> timesteps_inside.TimestepsInside:
    """What a watch of one forward found; torch's hooks stand for the wrapped call."""
    watch = timesteps_inside.TimestepsInside(torch, timesteps._timesteps, timesteps._is_table, timesteps._range)
    if watch.begins(model) is not None:
        for module in list(model.modules())[1:]:
            module.register_forward_hook(lambda m, given, out: watch.returned(m, out, (m, *given)))
        watch.ends(model, model(x))
    return watch


def test_timesteps_that_the_model_draws_itself() -> None:
    x = torch.randn(6, 3)
    for model, named in ((Drawing(), False), (Drawing(Denoiser()), True)):
        watch = looked_inside(model, x)
        assert watch.error is None
        assert watch.named is named
        assert watch.taken is not None
        name, values, ranged = watch.taken
        assert (name, ranged, len(values)) == ("t", ("schedule", 60), 6)
        assert 5 <= int(values.min()) <= int(values.max()) < 9
        assert timesteps._may_draw(torch, model)
    unscheduled = Drawing()
    del unscheduled.betas
    assert looked_inside(unscheduled, x).taken is None, "a table alone may be one of places in a series"
    assert looked_inside(Drawing().eval(), x).taken is None, "validation"
    assert not timesteps._may_draw(torch, nn.Sequential(nn.Linear(3, 3)))


def test_timesteps_in_a_batch_that_is_handed_over_whole() -> None:
    t = torch.randint(0, 50, (6,))
    assert timesteps._timesteps(torch, Denoiser(), ({"x": torch.randn(6, 3), "t": t},), {})[0] == "t"
    assert timesteps._timesteps(torch, Denoiser(), ({"x": torch.randn(6, 3), "label": t},), {}) is None, "classes"


def of_a_loop(upper: int, name: str = "t") -> Any:
    x = torch.randn(6, 3)
    t = torch.randint(0, upper, (len(x),))
    step = t if name == "step" else None
    return noise_schedules.drawn_beside(torch, 6), t, step


def of_labels() -> Any:
    t = torch.zeros(6, dtype=torch.int64)
    return noise_schedules.drawn_beside(torch, len(t))


def of_fewer_samples() -> Any:
    t = torch.randint(0, 50, (5,))
    return noise_schedules.drawn_beside(torch, len(t) + 1)


def test_timesteps_that_the_script_draws_beside_its_model() -> None:
    found, drawn, _ = of_a_loop(50)
    assert found[0] == "t"
    assert found[1].tolist() == drawn.tolist()
    assert of_a_loop(50, "step")[0] is None, "two that may be it"
    assert of_labels() is None, "nothing is drawn there"
    assert of_fewer_samples() is None
