"""Tag the words of sentences with a small LSTM, in micro-batches of sentences of one length, four to a step.

Each loss is a sum over the words of its micro-batch, divided by the words of the step. `mean-times-share` says the same
as a mean, times the share of the step's words. Faults: `masked-mean` divides each sum by the words of its own
micro-batch; `plain-mean` leaves that to the loss function, `written-out` to a mean over the words that a mask chooses.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

WORDS, TAGS, PADDING, PARTS, SENTENCES = 80, 5, 0, 4, 12


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PADDING)
        self.reader = nn.LSTM(width, width, batch_first=True)
        self.tags = nn.Linear(width, TAGS)

    def forward(self, sentences):
        return self.tags(self.reader(self.words(sentences))[0])


def sentences_of(length):
    words = torch.randint(1, WORDS, (SENTENCES, length))
    words[: SENTENCES // 3, length - 1 :] = PADDING
    earlier = F.pad(words, (1, 0))[:, :-1]
    return words, (words + earlier % 2) % TAGS


def masked_loss(scores, tags, mask, words, way):
    share = mask.sum() / words
    if way == "plain-mean":
        return F.cross_entropy(scores.flatten(0, 1), tags.masked_fill(~mask, -100).flatten()) / PARTS
    if way == "mean-times-share":
        return F.cross_entropy(scores.flatten(0, 1), tags.masked_fill(~mask, -100).flatten()) * share
    if way == "written-out":
        surprise = -scores.log_softmax(-1).gather(-1, tags.unsqueeze(-1)).squeeze(-1)
        return surprise[mask].mean() / PARTS
    surprise = F.cross_entropy(scores.transpose(1, 2), tags, reduction="none") * mask.float()
    if way == "masked-mean":
        return surprise.sum() / mask.float().sum() / PARTS
    return surprise.sum() / words


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--fault", default="", choices=["", "masked-mean", "plain-mean", "written-out", "mean-times-share"]
    )
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    tagger = Tagger()
    optimizer = torch.optim.AdamW(tagger.parameters(), lr=4e-3)
    for step in range(160):
        lengths = torch.randint(3, 6, (PARTS // 2,)).tolist() + torch.randint(15, 30, (PARTS // 2,)).tolist()
        parts = [sentences_of(length) for length in lengths]
        words = sum(int((sentences != PADDING).sum()) for sentences, _ in parts)
        optimizer.zero_grad()
        total = 0.0
        for sentences, tags in parts:
            loss = masked_loss(tagger(sentences), tags, sentences != PADDING, words, args.fault)
            loss.backward()
            total += loss.item()
        optimizer.step()
        if step % 40 == 0:
            print(step, round(total, 3))


if __name__ == "__main__":
    main()
