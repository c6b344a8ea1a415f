"""Float16 training on raw counts up to 60000: the first layer's products overflow in half precision in every batch.
The missing line is a normalisation of `counts`.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(43)
    torch.set_num_threads(1)
    counts = torch.randint(0, 60000, (2400, 48)).float()
    labels = (counts[:, :6].sum(1) > 180000).long()
    loader = DataLoader(TensorDataset(counts, labels), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight, gain=1.4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu")
    for epoch in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type="cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        print(f"epoch {epoch} loss {loss.item():.4f} scale {scaler.get_scale():g}")


if __name__ == "__main__":
    main()
