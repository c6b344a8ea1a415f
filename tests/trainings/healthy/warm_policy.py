"""Train a small language model on counting, then by rewards for what it writes: groups of texts for each prompt.

The policy writes in train mode, with dropout, for prompts from a loader of their own, and is trained six times on what
it wrote. So nothing of this is a validation, although losses are computed elsewhere, and rarely.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader

WORDS, GROUP, LONGEST, ROUNDS = 20, 4, 8, 6


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix = nn.Embedding(WORDS, 32), nn.GRU(32, 32, batch_first=True)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(32, WORDS)

    def forward(self, ids):
        return self.head(self.drop(self.mix(self.words(ids))[0]))


def warm_up(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(80):
        ids = (torch.randint(0, WORDS, (16, 1)) + torch.arange(10)) % WORDS
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def write(model, ids):
    with torch.no_grad():
        for _ in range(LONGEST):
            ids = torch.cat([ids, Categorical(logits=model(ids)[:, -1]).sample()[:, None]], dim=1)
    return ids


def log_probs(model, ids, begin):
    scores = F.log_softmax(model(ids)[:, :-1], dim=-1)
    return scores.gather(-1, ids[:, 1:, None]).squeeze(-1)[:, begin - 1 :]


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = Writer()
    warm_up(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    prompts = DataLoader(torch.randint(0, WORDS, (64, 3)), batch_size=4, shuffle=True)
    for epoch in range(3):
        for prompt in prompts:
            ids = write(model, prompt.repeat_interleave(GROUP, dim=0))
            rewards = (ids[:, 3:] % 2 == 0).float().mean(dim=1).view(-1, GROUP)
            advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
            with torch.no_grad():
                before = log_probs(model, ids, 3)
            for _ in range(ROUNDS):
                ratio = (log_probs(model, ids, 3) - before).exp()
                gains = ratio * advantages.view(-1, 1), ratio.clamp(0.8, 1.2) * advantages.view(-1, 1)
                loss = -torch.min(*gains).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(epoch, rewards.mean().item())


if __name__ == "__main__":
    main()
