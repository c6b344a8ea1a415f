"""A recurrent network reads the digits of a strip, one after the other, under a CTC loss.

`--fault narrow`: it looks at every eighth column alone, which leaves too few time steps for strips that repeat a digit.
"""

import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
DIGITS, LENGTH, WIDTH = 10, 4, 12
STRIDE = 8 if FAULT == "narrow" else 4


def drawn(count):
    generator = torch.Generator().manual_seed(3)
    glyphs = torch.rand(DIGITS, 8, WIDTH, generator=generator)
    labels = torch.randint(0, DIGITS, (count, LENGTH), generator=generator)
    strips = torch.cat([glyphs[labels[:, place]] for place in range(LENGTH)], 2)
    return strips + 0.1 * torch.randn(strips.shape, generator=generator) - 0.5, labels + 1


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Conv1d(8, 32, 9, stride=STRIDE, padding=4)
        self.read = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self.spell = nn.Linear(64, DIGITS + 1)

    def forward(self, strips):
        seen = functional.relu(self.look(strips)).transpose(1, 2)
        return self.spell(self.read(seen)[0]).transpose(0, 1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(*drawn(1280)), batch_size=32, shuffle=True)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        for strips, labels in loader:
            optimizer.zero_grad()
            scores = model(strips)
            steps = torch.full((len(labels),), len(scores))
            lengths = torch.full((len(labels),), LENGTH)
            loss = functional.ctc_loss(scores.log_softmax(2), labels, steps, lengths)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
