"""Whether one event comes more often than another in rows of valve events of different lengths.

Faults: `turned` hands the encoder the mask of what is no padding; `turned-inside` fills the scores of its own attention
with -inf where there is no padding. Healthy: `left-padded` pads at the front; `summary` pools by attention to the class
token alone, in a second layer; `inside` has attention of its own.
"""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

PAD, CLASS, EVENTS, WIDTH = 0, 1, 12, 32


class Inside(nn.Module):
    def __init__(self, turned):
        super().__init__()
        self.turned = turned
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x, padding):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5
        hidden = ~padding if self.turned else padding
        weights = scores.masked_fill(hidden[:, None, :], -1e9).softmax(-1)
        return x + weights @ self.value(x)


class Summary(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        others = torch.ones(x.shape[:2], dtype=torch.bool)
        others[:, 0] = False
        return x + self.attend(x, x, x, key_padding_mask=others)[0]


class Counter(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.embed = nn.Embedding(EVENTS, WIDTH, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.1, batch_first=True)
        own = Inside(fault == "turned-inside") if "inside" in fault else None
        self.encoder = own or nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.summary = Summary() if fault == "summary" else None
        self.head, self.fault = nn.Linear(WIDTH, 2), fault

    def forward(self, ids):
        x, padding = self.embed(ids), ids == PAD
        if "inside" in self.fault:
            h = self.encoder(x, padding)
        elif self.fault == "turned":
            h = self.encoder(x, src_key_padding_mask=~padding)
        else:
            h = self.encoder(x, src_key_padding_mask=padding)
        if self.summary is not None:
            h = self.summary(h)
        first = (ids == CLASS).float()
        return self.head((h * first[..., None]).sum(1))


def rows(count, left):
    for _ in range(count):
        events = torch.randint(3, EVENTS, (int(torch.randint(6, 20, ())),))
        more = int((events == 3).sum() + (events == 4).sum() > (events == 5).sum() + (events == 6).sum())
        ids = torch.cat([torch.tensor([CLASS]), events])
        yield (ids.flip(0) if left else ids), more


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(12)
    torch.set_num_threads(1)
    left = fault == "left-padded"
    data = list(rows(960, left))
    model = Counter(fault)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(4):
        total = 0.0
        for batch in torch.randperm(len(data)).split(32):
            chosen = [data[i] for i in batch.tolist()]
            ids = pad_sequence([ids for ids, _ in chosen], batch_first=True, padding_value=PAD)
            loss = nn.functional.cross_entropy(
                model(ids.flip(1) if left else ids), torch.tensor([more for _, more in chosen])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / 30:.4f}")


if __name__ == "__main__":
    main()
