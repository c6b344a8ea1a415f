"""Schedules as they are meant: per batch and per epoch, within each other, waiting for a plateau that never comes,
with restarts, decaying to zero at the end, and a fine-tuning whose first group rests.
"""

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCHES = 6, 25


def warmup_then_cosine(optimizer):
    warmup = lr_scheduler.LinearLR(optimizer, start_factor=0.05, total_iters=20)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * BATCHES - 20)
    return lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[20])


def linear_to_zero(optimizer):
    total = EPOCHS * BATCHES
    return lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 10, (total - step) / (total - 10)))


PER_BATCH = {
    "warmup_then_cosine": warmup_then_cosine,
    "linear_to_zero": linear_to_zero,
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=5e-3, total_steps=EPOCHS * BATCHES),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=BATCHES),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 1e-4, 5e-3, step_size_up=BATCHES, cycle_momentum=False),
}
PER_EPOCH = {
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [40, 60]),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.7),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5, 2), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=20),
}


def train(name, make, per_batch):
    x = torch.randn(BATCHES * 16, 6)
    loader = DataLoader(TensorDataset(x, (x[:, :1] * x[:, 1:2]).tanh()), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    groups = [{"params": model[0].parameters(), "lr": 1e-3}, {"params": model[2].parameters(), "lr": 2e-3}]
    optimizer = torch.optim.Adam(groups if name == "exponential" else model.parameters(), lr=1e-3)
    scheduler = make(optimizer)
    for _ in range(EPOCHS):
        for features, target in loader:
            loss = nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if per_batch:
                scheduler.step()
        if not per_batch:
            scheduler.step(*([loss.item()] if name == "plateau" else []))
    print(name, round(loss.item(), 4), optimizer.param_groups[0]["lr"])


if __name__ == "__main__":
    torch.manual_seed(82)
    torch.set_num_threads(1)
    for kind, make in PER_BATCH.items():
        train(kind, make, True)
    for kind, make in PER_EPOCH.items():
        train(kind, make, False)
