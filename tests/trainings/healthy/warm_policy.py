"""Train a small language model on counting, then by rewards for what it writes: groups of texts for each prompt.

The policy writes in train mode, with dropout, for prompts from a loader of their own. What it wrote for a batch of them
trains it in six steps. So nothing of this is a validation, although it comes with few steps, and without a loss.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader

WORDS, GROUP, LONGEST, PROMPTS = 20, 4, 8, 6


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
    prompts = DataLoader(torch.randint(0, WORDS, (96, 3)), batch_size=PROMPTS, shuffle=True)
    for epoch in range(3):
        for prompt in prompts:
            ids = write(model, prompt.repeat_interleave(GROUP, dim=0))
            rewards = (ids[:, 3:] % 2 == 0).float().mean(dim=1).view(-1, GROUP)
            advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
            for part in torch.randperm(len(ids)).split(len(ids) // PROMPTS):
                loss = -(log_probs(model, ids[part], 3) * advantages.view(-1, 1)[part]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(epoch, rewards.mean().item())


if __name__ == "__main__":
    main()
