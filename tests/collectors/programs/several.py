"""Programs that make several trainings: `several.py NAME`. Each prints nothing; what is recorded of them is tested."""

import copy
import sys
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 60
KEPT = []  # beyond the end of its training


class Spare(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(10, 3), nn.Linear(10, 3)

    def forward(self, x):
        return self.used(x)


def data(samples=128):
    x = torch.randn(samples, 10)
    return x, x[:, :3].argmax(1)


def net():
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def train(model, optimizer, x, y, steps=STEPS, clear=True):
    model.train()
    for _ in range(steps):
        if clear:
            optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def sweep():
    """Five trainings in a for loop; the third never clears its gradients."""
    x, y = data()
    kept = []
    for number in range(5):
        model = net()
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), x, y, clear=number != 2)
        kept.append(model)


def folds():
    """Cross-validation with one model that is reset for every fold; the second fold is validated in train mode."""
    x, y = data()
    model = net()
    start = copy.deepcopy(model.state_dict())
    for fold in range(3):
        model.load_state_dict(start)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        valid = DataLoader(TensorDataset(x[fold * 32 :][:32], y[fold * 32 :][:32]), batch_size=16)
        for _ in range(6):
            train(model, optimizer, x, y, steps=20)
            if fold != 1:
                model.eval()
            with torch.no_grad():
                for inputs, targets in valid:
                    F.cross_entropy(model(inputs), targets)


def anew():
    """An optimizer for every epoch of one training, with a rate that falls."""
    x, y = data()
    model = net()
    for epoch in range(6):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * 0.8**epoch)
        train(model, optimizer, x, y, steps=20)


def two_tasks():
    """One model that learns a second thing after the first, with an optimizer for each."""
    x, y = data()
    model = net()
    for targets in (y, y.flip(0)):
        train(model, torch.optim.Adam(model.parameters(), lr=0.01), x, targets, steps=60)


def interleaved():
    """Two models side by side, of different losses, batch sizes and optimizers; each step clips its own gradients."""
    x, y = data()
    one, two = net(), nn.Linear(10, 1)
    of_one, of_two = torch.optim.AdamW(one.parameters(), lr=1e-3), torch.optim.SGD(two.parameters(), lr=1e-3)
    for _ in range(STEPS):
        first = F.cross_entropy(one(x), y)
        second = (two(x[:32]) - 100.0).square().mean()
        of_one.zero_grad()
        of_two.zero_grad()
        first.backward()
        second.backward()
        nn.utils.clip_grad_norm_(one.parameters(), 1.0)
        nn.utils.clip_grad_norm_(two.parameters(), 5.0)
        of_one.step()
        of_two.step()


def freed():
    """A model with a spare layer is freed while its optimizer is still around, and another one is trained."""
    x, y = data()
    first = Spare()
    kept = torch.optim.SGD(first.parameters(), lr=0.01)
    train(first, kept, x, y)
    del first
    other = net()
    train(other, torch.optim.SGD(other.parameters(), lr=0.01), x, y)
    KEPT.append(kept)


def gan():
    real = torch.randn(64, 4)
    generator, critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(4, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        fake = generator(torch.randn(64, 2))
        of_critic.zero_grad()
        criterion(critic(real), torch.ones(64, 1)).backward()
        criterion(critic(fake.detach()), torch.zeros(64, 1)).backward()
        of_critic.step()
        of_generator.zero_grad()
        criterion(critic(fake), torch.ones(64, 1)).backward()
        of_generator.step()


def head_and_body():
    """Two optimizers on one model."""
    x, y = data()
    model = net()
    body, head = torch.optim.SGD(model[0].parameters(), lr=0.01), torch.optim.Adam(model[3].parameters(), lr=0.01)
    for _ in range(STEPS):
        body.zero_grad()
        head.zero_grad()
        F.cross_entropy(model(x), y).backward()
        body.step()
        head.step()


def distillation():
    """A teacher is trained, then taught from: two trainings, and the teacher's calls evaluate the first one's model."""
    x, y = data()
    teacher, student = net(), net()
    train(teacher, torch.optim.SGD(teacher.parameters(), lr=0.05), x, y)
    teacher.eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    for _ in range(STEPS):
        with torch.no_grad():
            target = teacher(x).softmax(1)
        optimizer.zero_grad()
        F.kl_div(student(x).log_softmax(1), target, reduction="batchmean").backward()
        optimizer.step()


def threads():
    """Two trainings at the same time, one that never clears its gradients, and a thread that only evaluates."""
    x, y = data()
    both = threading.Barrier(3)

    def trains(clear):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            both.wait()
            train(model, optimizer, x, y, steps=1, clear=clear)

    def evaluates():
        model = net().eval()
        for _ in range(STEPS):
            both.wait()
            with torch.no_grad():
                model(x)

    started = [
        threading.Thread(target=trains, args=(True,), name="careful"),
        threading.Thread(target=trains, args=(False,), name="careless"),
        threading.Thread(target=evaluates, name="judge"),
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def short_threads():
    """A thread for every epoch of one training."""
    x, y = data()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        thread = threading.Thread(target=train, args=(model, optimizer, x, y, 15), name=f"epoch-{epoch}")
        thread.start()
        thread.join()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
