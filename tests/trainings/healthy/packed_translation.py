"""A GRU over packed sequences with padding ignored in the loss, label smoothing and an inverse-square-root schedule."""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD = 0


class Sentences(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 15, (count,), generator=generator)
        self.source = [torch.randint(1, 24, (n,), generator=generator) for n in lengths.tolist()]

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        words = self.source[index]
        return words, (words + words.roll(1)) % 23 + 1


def collate(pairs):
    source, target = zip(*pairs, strict=True)
    lengths = torch.tensor([len(s) for s in source])
    return pad_sequence(source, True, PAD), lengths, pad_sequence(target, True, PAD)


class Translator(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(24, width, padding_idx=PAD)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.mix = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, source, lengths):
        packed = pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.drop(torch.tanh(self.mix(hidden))) @ self.embed.weight.T


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(91)
    torch.set_num_threads(1)
    loader = DataLoader(Sentences(1200, 1), batch_size=24, shuffle=True, collate_fn=collate)
    held_out = DataLoader(Sentences(120, 2), batch_size=60, collate_fn=collate)
    model = Translator()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 30, (30 / (s + 1)) ** 0.5))
    for epoch in range(args.epochs):
        model.train()
        for source, lengths, target in loader:
            scores = model(source, lengths)
            loss = criterion(scores.transpose(1, 2), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.inference_mode():
            losses = [criterion(model(s, n).flatten(0, 1), t.flatten()).item() for s, n, t in held_out]
        print(f"epoch {epoch} train {loss.item():.3f} held out {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    main()
