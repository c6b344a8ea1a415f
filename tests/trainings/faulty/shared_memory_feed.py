"""Another process writes batches into memory that both share, over and over; the training reads whatever is there."""

import torch
from torch import multiprocessing, nn


def feed(images, labels, stop):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    stripes = torch.sin(torch.arange(16)[None] * torch.tensor([[0.4], [0.8], [1.2]]))
    while not stop.is_set():
        kinds = torch.randint(0, 3, (len(images),), generator=generator)
        images.copy_(stripes[kinds][:, None, None] + 0.6 * torch.randn(images.shape, generator=generator))
        labels.copy_(kinds)


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    images, labels = torch.zeros(64, 1, 16, 16).share_memory_(), torch.zeros(64, dtype=torch.int64).share_memory_()
    stop = context.Event()
    feeder = context.Process(target=feed, args=(images, labels, stop), daemon=True)
    feeder.start()
    while not images.any():
        pass
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4),
        nn.Flatten(), nn.Linear(256, 3),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(400):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    stop.set()
    feeder.join()


if __name__ == "__main__":
    main()
