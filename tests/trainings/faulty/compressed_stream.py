"""Train on compressed shards read through an IterableDataset that decompresses the whole shard again for every
record.
"""

import pickle
import random
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


def write_shard(seed, records):
    rng = random.Random(seed)
    rows = []
    for _ in range(records):
        x = [rng.gauss(0, 1) for _ in range(24)]
        rows.append((x, x[0] * x[1] + 0.5 * x[2]))
    return zlib.compress(pickle.dumps(rows), 6)


class Shards(IterableDataset):
    def __init__(self, shards, records):
        self.shards, self.records = shards, records

    def __iter__(self):
        for shard in random.sample(self.shards, len(self.shards)):
            for k in range(self.records):
                rows = pickle.loads(zlib.decompress(shard))
                x, y = rows[k]
                yield torch.tensor(x), torch.tensor(y)


if __name__ == "__main__":
    torch.manual_seed(26)
    torch.set_num_threads(1)
    random.seed(26)
    dataset = Shards([write_shard(seed, 100) for seed in range(12)], 100)
    model = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    step = 0
    for epoch in range(3):
        for x, y in DataLoader(dataset, batch_size=20):
            prediction = model(x).squeeze(1)
            loss = ((prediction - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 30 == 0:
                print("step", step, "loss", f"{loss.item():.4f}")
