"""Notes on parcels are sorted by the words that attention weighs; in training one word in five is hidden.

Faults: `all-hidden`: a note of three words may lose all of them, and the softmax over its words is NaN.
"""

import argparse

import torch
from torch import nn

WORDS, KINDS, LONGEST = 40, 4, 9


class Notes(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 24)
        self.weigh = nn.Linear(24, 1)
        self.sort = nn.Linear(24, KINDS)

    def forward(self, notes, shown):
        words = self.words(notes)
        scores = torch.where(shown, self.weigh(words).squeeze(-1), -torch.inf)
        share = scores.softmax(-1)
        return self.sort((share[..., None] * words).sum(1))


def draw(n):
    kinds = torch.randint(0, KINDS, (n,))
    notes = torch.randint(0, WORDS, (n, LONGEST))
    notes = torch.where(torch.rand(n, LONGEST) < 0.5, notes // KINDS * KINDS + kinds[:, None], notes)
    return notes, torch.arange(LONGEST) < torch.randint(3, LONGEST + 1, (n, 1)), kinds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(15)
    torch.set_num_threads(1)
    held = draw(400)
    model = Notes()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, 601):
        notes, shown, kinds = draw(8)
        kept = shown & (torch.rand(shown.shape) > 0.2)
        if args.fault != "all-hidden":
            kept[:, 0] = True
        loss = nn.functional.cross_entropy(model(notes, kept), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            with torch.no_grad():
                right = (model(held[0], held[1]).argmax(1) == held[2]).float().mean().item()
            print(f"{step}: {loss.item():.3f}, right {right:.2f}")


if __name__ == "__main__":
    main()
