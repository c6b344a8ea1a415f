"""The loader hands out pictures as bytes, 0 to 255, which travel fast; the loop scales them next to the model."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(84)
    torch.set_num_threads(1)
    label = torch.randint(0, 3, (1200,))
    stripes = torch.arange(20).view(1, 1, 1, 20) // (label.view(-1, 1, 1, 1) + 1) % 2
    image = (stripes * 160 + torch.randint(0, 95, (1200, 1, 20, 20))).to(torch.uint8)
    loader = DataLoader(TensorDataset(image, label), batch_size=40, shuffle=True)
    mean, std = image.float().mean(), image.float().std()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 3),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(6):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model((x.float() - mean) / std), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
