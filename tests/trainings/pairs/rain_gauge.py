"""Rain of the next hour from twelve readings; TensorBoard gets the mean loss of every 25 steps.

Faults: `never-reset` goes on adding to the first sum, `reset-by-epoch` begins it anew with each epoch only;
`times-batch` adds up losses of samples and divides by batches, `over-samples` adds up means of batches and divides by
samples.
"""

import argparse
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--fault", default="", choices=["", "never-reset", "reset-by-epoch", "times-batch", "over-samples"]
    )
    args = parser.parse_args()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    readings = torch.randn(1600, 12)
    rain = readings[:, :3].relu().sum(1, keepdim=True) + 0.1 * torch.randn(1600, 1)
    loader = DataLoader(TensorDataset(readings, rain), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        running, done = 0.0, 0
        for epoch in range(5):
            if args.fault == "reset-by-epoch":
                running = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                done += 1
                running += loss.item() * (len(x) if args.fault == "times-batch" else 1)
                if done % 25 == 0:
                    writer.add_scalar("train/loss", running / (800 if args.fault == "over-samples" else 25), done)
                    if not args.fault.startswith(("never", "reset")):
                        running = 0.0
            print(epoch, loss.item())


if __name__ == "__main__":
    main()
