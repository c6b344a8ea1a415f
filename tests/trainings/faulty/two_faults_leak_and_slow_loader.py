"""Two faults: the epoch loss keeps every graph (`epoch_loss += loss`), and each sample waits for a slow disk."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, index):
        time.sleep(0.0006)
        x = torch.randn(40, generator=torch.Generator().manual_seed(index))
        return x, x[:5].sum()


def main():
    torch.manual_seed(93)
    torch.set_num_threads(1)
    loader = DataLoader(Files(), batch_size=16, shuffle=True, num_workers=0)
    model = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    epoch_loss = 0.0
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss += loss
        print(f"epoch {epoch}: {epoch_loss / len(loader) / (epoch + 1):.4f}")


if __name__ == "__main__":
    main()
