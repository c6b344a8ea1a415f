"""Add words to the vocabulary of a tiny language model, and fine-tune low-rank adapters of its layers.

The embedding is trained as well, since it has new rows. Faults: `frozen-rows` freezes the embedding with everything
else that is not an adapter; `rows-of-file` does so with a model that is made without values, takes those of a file, and
gets a larger weight. (Three are no faults. `only-padding` freezes the embedding, and the only new word is
padding. `trained-copy` keeps the embedding as it was beside a copy that is looked up and trained, `trained-offsets`
adds what is learned to its rows.)
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

OLD, NEW, WIDTH, LENGTH = 50, 6, 32, 16


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(base.in_features, 4, bias=False), nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Kept(nn.Module):
    def __init__(self, original):
        super().__init__()
        self.copies = nn.ModuleDict({"default": copy.deepcopy(original).requires_grad_(True)})
        self.original = original.requires_grad_(False)

    def forward(self, ids):
        return self.copies["default"](ids)


class Offset(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.low, self.high = nn.Parameter(torch.zeros(OLD + NEW, 4)), nn.Parameter(torch.randn(4, WIDTH))

    def forward(self, ids):
        return self.base(ids) + F.embedding(ids, self.low) @ self.high


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix = nn.Embedding(OLD, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.feed, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, OLD + NEW)

    def forward(self, ids):
        return self.head(torch.tanh(self.feed(self.mix(self.words(ids))[0])))


def extend(model):
    words = nn.Embedding(OLD + NEW, WIDTH)
    with torch.no_grad():
        words.weight[:OLD] = model.words.weight
    model.words = words


def from_file(model):
    with torch.device("meta"):
        made = Causal()
    made.load_state_dict(model.state_dict(), assign=True)
    words = nn.Embedding(OLD + NEW, WIDTH)
    words.weight.data[:OLD] = made.words.weight.data
    made.words.weight.data = words.weight.data
    return made


WRAPPERS = {"trained-copy": Kept, "trained-offsets": Offset}


def batch(fault):
    start = torch.randint(0, OLD, (16, 1))
    ids = (start + torch.arange(LENGTH)) % OLD
    if fault == "only-padding":
        lengths = torch.randint(6, LENGTH, (16, 1))
        padding = torch.arange(LENGTH) >= lengths
        return ids.masked_fill(padding, OLD), ids.masked_fill(padding, -100)
    ids[:, 5] = OLD + start[:, 0] % NEW
    return ids, ids


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "frozen-rows", "rows-of-file", "only-padding", *WRAPPERS])
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    model = Causal()
    if args.fault == "rows-of-file":
        model = from_file(model)
    else:
        extend(model)
    model.requires_grad_(False)
    model.feed, model.head = Adapted(model.feed), Adapted(model.head)
    if args.fault in WRAPPERS:
        model.words = WRAPPERS[args.fault](model.words)
    if not args.fault:
        model.words.requires_grad_(True)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for step in range(120):
        ids, labels = batch(args.fault)
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
