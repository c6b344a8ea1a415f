"""Train a small language model by rewards that are compared within groups of completions (GRPO), two passes over each.

The model writes letters after a prompt and keeps how likely it found each; letters after the end symbol do not count.
Faults: `temperature` divides the scores by 0.6 as it writes, but not as it is trained. `dropout` leaves the model in
train mode, so that the dropout of each pass is another one. `no-end` keeps the end symbol from being written.
"""

import argparse

import torch
from torch import nn

LETTERS, END, PROMPT, WRITTEN, GROUP = 14, 0, 3, 8, 8


class Writer(nn.Module):
    def __init__(self, width=48, ends=True):
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, width), nn.Embedding(PROMPT + WRITTEN, width)
        self.drop, self.ends = nn.Dropout(0.1), ends
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)
        self.body, self.scores = nn.TransformerEncoder(layer, 1), nn.Linear(width, LETTERS)

    def forward(self, ids):
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.drop(self.letters(ids) + self.places.weight[:length])
        scores = self.scores(self.body(hidden, mask=mask, is_causal=True))
        return scores if self.ends else scores - 9 * nn.functional.one_hot(torch.tensor(END), LETTERS)


@torch.no_grad()
def write(model, prompts, temperature):
    ids, logs = prompts, []
    for _ in range(WRITTEN):
        log_odds = (model(ids)[:, -1] / temperature).log_softmax(-1)
        letter = torch.multinomial(log_odds.exp(), 1)
        logs.append(log_odds.gather(-1, letter))
        ids = torch.cat([ids, letter], 1)
    return ids, torch.cat(logs, 1)


def rewards_of(ids, counts):
    """The letters of the prompt come again."""
    written = ids[:, PROMPT:]
    same = (written.unsqueeze(2) == ids[:, None, :PROMPT]).any(2).float() * counts
    return same.sum(1) / WRITTEN


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "temperature", "dropout", "no-end"])
    args = parser.parse_args()
    torch.manual_seed(23)
    torch.set_num_threads(1)
    model = Writer(ends=args.fault != "no-end")
    if args.fault != "dropout":
        model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for step in range(40):
        prompts = torch.randint(1, LETTERS, (8, PROMPT)).repeat_interleave(GROUP, 0)
        ids, old = write(model, prompts, 0.6 if args.fault == "temperature" else 1.0)
        ended = (ids[:, PROMPT:] == END).cumsum(1)
        counts = ((ended == 0) | ((ended == 1) & (ids[:, PROMPT:] == END))).float()
        rewards = rewards_of(ids, counts).view(-1, GROUP)
        gains = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        for _ in range(2):
            new = model(ids[:, :-1])[:, PROMPT - 1 :].log_softmax(-1).gather(-1, ids[:, PROMPT:, None]).squeeze(-1)
            ratio = (new - old).exp()
            terms = -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains)
            loss = (terms * counts).sum() / counts.sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if step % 10 == 0:
            print(step, round(rewards.mean().item(), 3))


if __name__ == "__main__":
    main()
