"""Train a small language model by rewards within groups of completions; weights that correct for the sampler are capped
and detached (truncated importance sampling), so that they are numbers for the loss.

The model writes letters after a prompt, and keeps how likely it found each. Faults: `temperature` divides the scores by
0.6 as it writes, but not as it is trained. `rounded` gives each completion the same reward, in three parts whose sum is
no number of single precision: what is left of the advantages is rounding. `passes` trains three times on the
completions of each step, with weights that leave 1, and `small` gives rewards that differ in the third decimal: both are
no faults.
"""

import argparse

import torch
from torch import nn

LETTERS, PROMPT, WRITTEN, PROMPTS, GROUP = 14, 3, 8, 6, 8


class Writer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, width), nn.Embedding(PROMPT + WRITTEN, width)
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)
        self.body, self.scores = nn.TransformerEncoder(layer, 1), nn.Linear(width, LETTERS)

    def forward(self, ids):
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.letters(ids) + self.places.weight[:length]
        return self.scores(self.body(hidden, mask=mask, is_causal=True))


@torch.no_grad()
def write(model, prompts, temperature):
    ids, logs = prompts, []
    for _ in range(WRITTEN):
        log_odds = (model(ids)[:, -1] / temperature).log_softmax(-1)
        letter = torch.multinomial(log_odds.exp(), 1)
        logs.append(log_odds.gather(-1, letter))
        ids = torch.cat([ids, letter], 1)
    return ids, torch.cat(logs, 1)


def rewards_of(ids, fault):
    """The letters of the prompt come again."""
    same = (ids[:, PROMPT:].unsqueeze(2) == ids[:, None, :PROMPT]).any(2).float().mean(1)
    if fault == "rounded":
        is_long, is_text = (ids >= 0).float().mean(1), (ids < LETTERS).float().mean(1)
        return 0.1 * is_long + 0.2 * is_text + 0.7 * (same > 1)
    return 0.7 + 0.01 * same if fault == "small" else same


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "temperature", "rounded", "passes", "small"])
    args = parser.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for step in range(50):
        prompts = torch.randint(1, LETTERS, (PROMPTS, PROMPT)).repeat_interleave(GROUP, 0)
        ids, sampled = write(model, prompts, 0.6 if args.fault == "temperature" else 1.0)
        rewards = rewards_of(ids, args.fault).view(PROMPTS, GROUP)
        spread = rewards.std(1, keepdim=True)
        advantages = ((rewards - rewards.mean(1, keepdim=True)) / (spread + 1e-4)).view(-1, 1)
        for _ in range(3 if args.fault == "passes" else 1):
            scores = model(ids[:, :-1])[:, PROMPT - 1 :]
            logs = scores.log_softmax(-1).gather(-1, ids[:, PROMPT:, None]).squeeze(-1)
            weight = (logs - sampled).exp().clamp(max=2.0).detach()
            loss = -(weight * advantages * logs).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 10 == 0:
            print(step, round(rewards.mean().item(), 3))


if __name__ == "__main__":
    main()
