"""Training loops of different shapes around one small model, for `hooks.py`: what recording costs in each.

Each function trains until `done`, which it calls at the end of every iteration, says so.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Done = Callable[[], bool]
MICRO_BATCHES = 4


def model(width: int = 64, outputs: int = 10) -> nn.Module:
    layers = [nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)]
    return nn.Sequential(*layers)


def data(samples: int = 320_000) -> TensorDataset:
    """More than a measurement uses: a pass over a loader that began without hooks would not be known with them."""
    return TensorDataset(torch.randn(samples, 32), torch.randint(0, 10, (samples,)))


def endless(loader: Any) -> Any:
    return itertools.chain.from_iterable(itertools.repeat(loader))


def plain(done: Done) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = torch.randn(32, 32), torch.randint(0, 10, (32,))
    while True:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        if done():
            return


def accumulation(done: Done) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for index, (x, y) in enumerate(endless(DataLoader(data(), batch_size=32, shuffle=True, drop_last=True))):
        (F.cross_entropy(net(x), y) / MICRO_BATCHES).backward()
        if index % MICRO_BATCHES == MICRO_BATCHES - 1:
            optimizer.step()
            optimizer.zero_grad()
            if done():
                return


def gan(done: Done) -> None:
    generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
    critic = model(outputs=1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    criterion, real = nn.BCEWithLogitsLoss(), torch.randn(32, 32)
    ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
    while True:
        noise = torch.randn(32, 16)
        of_critic.zero_grad()
        criterion(critic(real), ones).backward()
        fake = generator(noise)
        criterion(critic(fake.detach()), zeros).backward()
        of_critic.step()
        of_generator.zero_grad()
        criterion(critic(fake), ones).backward()
        of_generator.step()
        if done():
            return


def dqn(done: Done) -> None:
    """The policy acts nine times in ten, at random otherwise; its values are learnt from a target network."""
    net, target = model(), model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    state, following = torch.randn(32, 32), torch.randn(32, 32)
    action, chance = torch.randint(0, 10, (32, 1)), torch.Generator().manual_seed(0)
    while True:
        if torch.rand((), generator=chance) < 0.9:
            with torch.no_grad():
                net(state[:1]).argmax().item()
        chosen = net(state).gather(1, action)
        with torch.no_grad():
            wanted = 1 + 0.9 * target(following).amax(1, keepdim=True)
        optimizer.zero_grad()
        F.smooth_l1_loss(chosen, wanted).backward()
        optimizer.step()
        if done():
            return


def actor_critic(done: Done) -> None:
    """The two step in turn; the critic is learnt from a target network, the actor through the critic."""
    actor, critic, target = model(outputs=32), model(outputs=1), model(outputs=1)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-4)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    state, following = torch.randn(32, 32), torch.randn(32, 32)
    while True:
        with torch.no_grad():
            wanted = 1 + 0.9 * target(actor(following))
        of_critic.zero_grad()
        F.mse_loss(critic(state), wanted).backward()
        of_critic.step()
        of_actor.zero_grad()
        (-critic(actor(state)).mean()).backward()
        of_actor.step()
        if done():
            return


def distillation(done: Done) -> None:
    net, teacher = model(), model(width=128).eval()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for x, y in endless(DataLoader(data(), batch_size=32, shuffle=True, drop_last=True)):
        with torch.no_grad():
            wanted = F.softmax(teacher(x), dim=1)
        answer = net(x)
        loss = F.cross_entropy(answer, y) + F.kl_div(F.log_softmax(answer, 1), wanted, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if done():
            return


def cleared(done: Done) -> None:
    """Gradients are cleared between micro-batches, so that all but the last are lost."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for index, (x, y) in enumerate(endless(DataLoader(data(), batch_size=32, shuffle=True, drop_last=True))):
        optimizer.zero_grad()
        (F.cross_entropy(net(x), y) / MICRO_BATCHES).backward()
        if index % MICRO_BATCHES == MICRO_BATCHES - 1:
            optimizer.step()
            if done():
                return


def evaluated(done: Done) -> None:
    """Every twenty steps the model is evaluated on ten batches."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = torch.randn(32, 32), torch.randint(0, 10, (32,))
    held = torch.randn(10, 32, 32), torch.randint(0, 10, (10, 32))
    for index in itertools.count(1):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        if index % 20 == 0:
            net.eval()
            with torch.no_grad():
                sum(F.cross_entropy(net(given), labels).item() for given, labels in zip(*held, strict=True))
            net.train()
        if done():
            return


def views(done: Done) -> None:
    """The model is called with two views of a batch before each backward."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.randn(32, 32)
    while True:
        optimizer.zero_grad()
        F.mse_loss(net(x), net(x + 0.1)).backward()
        optimizer.step()
        if done():
            return


def accelerate(done: Done) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = model()
    loader = DataLoader(data(), batch_size=32, shuffle=True, drop_last=True)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-3), loader)
    for x, y in endless(loader):
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(net(x), y))
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if done():
            return


class Classifier(nn.Module):
    """As models of transformers are: takes names, returns the loss in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.net = model()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self) -> None:
        self.x, self.y = data(4096).tensors

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index % 4096], "labels": self.y[index % 4096]}


def trainer(done: Done, micro_batches: int = 1) -> None:
    import transformers
    from transformers import Trainer, TrainerCallback, TrainingArguments

    transformers.logging.set_verbosity_error()

    class Ends(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _args: Any, _state: Any, control: Any, **_more: Any) -> None:
            control.should_training_stop = done()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=32,
            max_steps=1_000_000,
            logging_steps=500,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            gradient_accumulation_steps=micro_batches,
        )
        Trainer(Classifier(), arguments, train_dataset=Rows(), callbacks=[Ends()]).train()


def trainer_accumulation(done: Done) -> None:
    trainer(done, MICRO_BATCHES)


def lightning(done: Done) -> None:
    import lightning.pytorch as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            x, y = batch
            return F.cross_entropy(self.net(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class Ends(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *_more: Any) -> None:
            trainer.should_stop = done()

    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitting = pl.Trainer(accelerator="cpu", max_epochs=-1, max_steps=-1, enable_model_summary=False,
                             default_root_dir=folder, callbacks=[Ends()], **quiet)  # fmt: skip
        fitting.fit(Module(), DataLoader(data(), batch_size=32, shuffle=True, drop_last=True))


# By name: the loop, how many backwards an iteration has, and the package that it needs.
LOOPS: dict[str, tuple[Callable[[Done], None], int, str]] = {
    "plain": (plain, 1, "torch"),
    "accumulation": (accumulation, MICRO_BATCHES, "torch"),
    "gan": (gan, 3, "torch"),
    "dqn": (dqn, 1, "torch"),
    "actor_critic": (actor_critic, 2, "torch"),
    "distillation": (distillation, 1, "torch"),
    "cleared": (cleared, MICRO_BATCHES, "torch"),
    "evaluated": (evaluated, 1, "torch"),
    "views": (views, 1, "torch"),
    "accelerate": (accelerate, 1, "accelerate"),
    "trainer": (trainer, 1, "transformers"),
    "trainer_accumulation": (trainer_accumulation, MICRO_BATCHES, "transformers"),
    "lightning": (lightning, 1, "lightning"),
}
