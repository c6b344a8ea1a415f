"""Trains what torch warns about when it is computed with carelessly. Run with `-W error`: nothing here may warn."""

import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

STEPS = 30


class Rotation(nn.Module):
    """Complex weights beside real ones, and complex numbers between its modules."""

    def __init__(self):
        super().__init__()
        self.turn = nn.Parameter(torch.randn(8, dtype=torch.complex64))
        self.mix = nn.Linear(8, 8, dtype=torch.complex64)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.mix(x * self.turn).abs())


def stepped(model, optimizer, batches, loss):
    for batch in batches:
        optimizer.zero_grad()
        loss(model(batch)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def squared(output):
    return output.abs().square().mean()


def complex_weights():
    model = Rotation()
    print("norm", model.turn.detach().abs().square().sum().sqrt().item())
    rows = torch.randn(4 * STEPS, 8, dtype=torch.complex64)
    rows[60:64] *= 1000  # a loss out of the ordinary, upon which more is looked at
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    stepped(model, optimizer, DataLoader(rows, batch_size=4), squared)
    model.eval()
    with torch.no_grad():
        functional.l1_loss(model(rows[:4]), torch.ones(4, 1))


def complex_weights_by_hand():
    weight = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    for _ in range(STEPS):
        weight.grad = None
        squared(weight * torch.randn(3)).backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad


def complex_weights_alone():
    model = nn.Linear(2, 2, dtype=torch.complex128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stepped(model, optimizer, [torch.randn(3, 2, dtype=torch.complex128) for _ in range(STEPS)], squared)


def complex_targets():
    model = nn.Linear(4, 4, dtype=torch.complex64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    target = torch.randn(3, 4, dtype=torch.complex64).conj()

    def loss(output):
        return functional.l1_loss(output, target) + functional.mse_loss(
            torch.view_as_real(output), torch.view_as_real(target.resolve_conj())
        )

    functional.l1_loss(torch.randn(3, 4, requires_grad=True), target).backward()
    stepped(model, optimizer, [torch.randn(3, 4, dtype=torch.complex64).conj() for _ in range(STEPS)], loss)


def sparse_gradients():
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randint(0, 10, (3,))).sum().backward()
        optimizer.step()


def single_elements():
    model = nn.Sequential(nn.Linear(1, 1), nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stepped(model, optimizer, [torch.randn(1, 1) for _ in range(STEPS)], squared)


def empty_batches():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stepped(model, optimizer, [torch.randn(step % 2, 2) for step in range(STEPS)], torch.sum)


def jagged_rows():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = [torch.randn(length, 4) for length in (1, 3)]
    for _ in range(STEPS):
        optimizer.zero_grad()
        given = torch.nested.nested_tensor(rows, layout=torch.jagged)
        model(given).values().square().mean().backward()
        optimizer.step()


def shapes_that_broadcast_on_purpose():
    """Scalars, and rates that are tensors."""
    scale = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.Adam([scale], lr=torch.tensor(0.01))
    for _ in range(STEPS):
        optimizer.zero_grad()
        (scale - 2.0).square().backward()
        optimizer.step()


def workers():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(torch.randn(40, 3), batch_size=4, num_workers=1)
    for _ in range(2):
        stepped(model, optimizer, loader, squared)


IDIOMS = (
    complex_weights,
    complex_weights_by_hand,
    complex_weights_alone,
    complex_targets,
    sparse_gradients,
    single_elements,
    empty_batches,
    jagged_rows,
    shapes_that_broadcast_on_purpose,
    workers,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    for idiom in IDIOMS:
        if len(sys.argv) > 1 and idiom.__name__ not in sys.argv[1:]:
            continue
        torch.manual_seed(0)
        try:
            idiom()
            print(idiom.__name__, "ended")
        except Exception as error:
            print(idiom.__name__, type(error).__name__, error)
