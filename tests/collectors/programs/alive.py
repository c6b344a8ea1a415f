"""Trains several models in turn, in many idioms, and says after each how much of it is still alive.

Once a training is over and its names are gone, plain Python has freed all of it. It must be the same when recorded.
"""

import gc
import warnings

import torch
from torch import nn

STEPS = 12


def made():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))


def data():
    return torch.randn(8, 4), torch.randn(8, 1)


def plain():
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        inputs, targets = data()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def settled():
    """Long enough for the fast path."""
    model = made()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs, targets = data()
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def accumulated():
    model = made()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        inputs, targets = data()
        (nn.functional.mse_loss(model(inputs), targets) / 4).backward()
        if step % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def scaled():
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(STEPS):
        inputs, targets = data()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


def closure():
    model = made()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    inputs, targets = data()

    def evaluate():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(evaluate)


def adversarial():
    one, other = made(), nn.Linear(1, 1)
    first = torch.optim.SGD(one.parameters(), lr=0.01)
    second = torch.optim.SGD(other.parameters(), lr=0.01)
    for _ in range(STEPS):
        fake = one(data()[0])
        second.zero_grad()
        other(fake.detach()).mean().backward()
        second.step()
        first.zero_grad()
        other(fake).mean().backward()
        first.step()


def by_hand():
    weights = torch.randn(4, 1, requires_grad=True)
    for _ in range(60):
        inputs, targets = data()
        loss = ((inputs @ weights - targets) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            weights -= 0.01 * weights.grad
            weights.grad = None


def scheduled():
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), batch_size=4, shuffle=True)
    best = None
    for _ in range(STEPS):
        model.train()
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            for inputs, targets in loader:
                nn.functional.mse_loss(model(inputs), targets).item()
        best = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best)


def inside_backward():
    model = made()
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        inputs, targets = data()
        nn.functional.mse_loss(model(inputs), targets).backward()


def interrupted():
    """The last backward is never followed by a step."""
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        inputs, targets = data()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        if step < STEPS - 1:
            optimizer.step()


def raised():
    """A backward that fails."""
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        inputs, targets = data()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        try:
            (loss if step % 2 else model(inputs)).backward()
        except RuntimeError:
            continue
        optimizer.step()


def acted():
    """A copy of the policy acts, and the policy is trained on what came of it; it acts once more at the end."""
    policy, copy = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for step in range(STEPS + 1):
        copy.load_state_dict(policy.state_dict())
        inputs = torch.randn(8, 4)
        with torch.no_grad():
            odds = torch.distributions.Categorical(logits=copy(inputs))
            chosen = odds.sample()
            old = odds.log_prob(chosen)
        if step < STEPS:
            ratio = (torch.distributions.Categorical(logits=policy(inputs)).log_prob(chosen) - old).exp()
            optimizer.zero_grad()
            (-(ratio * torch.randn(8)).mean()).backward()
            optimizer.step()


IDIOMS = (
    plain,
    settled,
    accumulated,
    scaled,
    closure,
    adversarial,
    by_hand,
    scheduled,
    inside_backward,
    interrupted,
    raised,
    acted,
)


def living():
    gc.collect()
    kinds = (torch.Tensor, nn.Module, torch.optim.Optimizer)
    return [type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds)]


warnings.simplefilter("ignore")  # of modules that are asked for their class
torch.manual_seed(0)
before = len(living())
for idiom in IDIOMS:
    idiom()
    alive = living()
    print(idiom.__name__, len(alive) - before)
