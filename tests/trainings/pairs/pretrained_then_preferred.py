"""Train a small language model on counting, then on preferences between texts, in one script.

The reference of the preferences is the model as it is when they begin. Faults: `reference-is-policy` compares with the
model itself. `same-optimizer` does so, too, and goes on with the optimizer of the first training.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

WORDS, LENGTH, PAIRS, BETA = 20, 10, 16, 0.1


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix, self.head = (
            nn.Embedding(WORDS, 32),
            nn.GRU(32, 32, batch_first=True),
            nn.Linear(32, WORDS),
        )

    def forward(self, ids):
        return self.head(self.mix(self.words(ids))[0])


def counted(by, samples):
    return (torch.randint(0, WORDS, (samples, 1)) + by * torch.arange(LENGTH)) % WORDS


def log_prob(model, ids):
    return F.log_softmax(model(ids)[:, :-1], dim=-1).gather(-1, ids[:, 1:, None]).sum(dim=(1, 2))


def pretrain(model, optimizer):
    for step in range(150):
        ids = counted(1, PAIRS)
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print("pretraining", step, loss.item())


def prefer(model, reference, optimizer):
    for step in range(80):
        texts = torch.cat([counted(2, PAIRS), torch.randint(0, WORDS, (PAIRS, LENGTH))])
        with torch.no_grad():
            before = log_prob(reference, texts)
        gains = log_prob(model, texts) - before
        loss = -F.logsigmoid(BETA * (gains[:PAIRS] - gains[PAIRS:])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print("preferences", step, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "reference-is-policy", "same-optimizer"])
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    pretrain(model, optimizer)
    reference = model if args.fault else copy.deepcopy(model).eval().requires_grad_(False)
    if args.fault != "same-optimizer":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    prefer(model, reference, optimizer)


if __name__ == "__main__":
    main()
