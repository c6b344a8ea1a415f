"""Teach a tiny causal language model which of two answers is preferred, against a frozen copy of itself.

Faults: `own-reference` compares the model with itself, `own-texts-again` does so on ids made anew, `own-network` with
the network that it wraps; `fresh-reference` copies the trained weights into the reference before every step.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, PROMPT, ANSWER, BETA = 40, 32, 6, 6, 0.5


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.body = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids):
        return self.head(self.body(self.words(ids))[0])


class Wrapped(nn.Module):
    """As adapters are laid around a network: the parameters are its own, under other names."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, ids):
        return self.network(ids)


def log_prob(model, ids):
    scores = model(ids)[:, :-1].log_softmax(-1)
    chosen = scores.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return chosen[:, PROMPT - 1 :].sum(-1)


def pairs(size):
    prompt = torch.randint(0, WORDS, (size, PROMPT))
    good = (prompt[:, :1] + torch.arange(ANSWER)) % WORDS
    bad = torch.randint(0, WORDS, (size, ANSWER))
    return torch.cat([prompt, good], 1), torch.cat([prompt, bad], 1)


def main():
    parser = argparse.ArgumentParser()
    faults = ["", "own-reference", "own-texts-again", "own-network", "fresh-reference"]
    parser.add_argument("--fault", default="", choices=faults)
    args = parser.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    policy = Wrapped(Causal())
    own = policy.network if args.fault == "own-network" else policy
    reference = own if args.fault.startswith("own-") else copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    for step in range(120):
        good, bad = pairs(16)
        if args.fault == "fresh-reference":
            reference.load_state_dict(policy.state_dict())
        again = args.fault == "own-texts-again"
        with torch.no_grad():
            before = log_prob(reference, good.clone() if again else good) - log_prob(reference, bad)
        margin = log_prob(policy, good) - log_prob(policy, bad)
        loss = -F.logsigmoid(BETA * (margin - before)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
