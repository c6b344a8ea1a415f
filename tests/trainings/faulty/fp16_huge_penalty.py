"""Float16 training that turns unstable in the middle: from step 150 on an auxiliary penalty enters with a weight of
3e9, which no loss scale can carry.
"""

import torch
import torch.nn.functional as F
from torch import nn

PENALTY_FROM, PENALTY_WEIGHT = 150, 3e9


def main():
    torch.manual_seed(49)
    torch.set_num_threads(1)
    encoder, decoder = nn.Linear(30, 60), nn.Linear(60, 30)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    w = torch.randn(8, 30)
    for step in range(400):
        x = torch.sigmoid(torch.randn(64, 8) @ w)
        with torch.autocast("cpu", dtype=torch.float16):
            code = F.relu(encoder(x))
            loss = F.mse_loss(decoder(code), x)
            if step >= PENALTY_FROM:
                loss = loss + PENALTY_WEIGHT * code.float().abs().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 50 == 0:
            print(step, f"{loss.item():.4g}", scaler.get_scale())


if __name__ == "__main__":
    main()
