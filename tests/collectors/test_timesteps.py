"""Timesteps are recognised by name, dtype and shape; schedules by what the functions of the program hold."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracelyze.collectors.signals.model import noise_schedules, timesteps  # noqa: E402


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
