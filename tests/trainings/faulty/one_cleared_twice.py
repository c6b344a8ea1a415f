"""Autoencoder whose two halves have optimizers of their own. The line that clears was copied, and its name not changed:
the encoder's gradients are cleared twice, the decoder's never.
"""

import torch
from torch import nn


def main():
    torch.manual_seed(23)
    torch.set_num_threads(1)
    mixing = torch.randn(6, 40)
    encoder = nn.Sequential(nn.Linear(40, 32), nn.Tanh(), nn.Linear(32, 6))
    decoder = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 40))
    enc_opt = torch.optim.Adam(encoder.parameters(), lr=2e-3)
    dec_opt = torch.optim.Adam(decoder.parameters(), lr=2e-3)
    for step in range(1, 401):
        signal = torch.tanh(torch.randn(64, 6) @ mixing)
        enc_opt.zero_grad(set_to_none=True)
        enc_opt.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(decoder(encoder(signal)), signal)
        loss.backward()
        enc_opt.step()
        dec_opt.step()
        if step % 100 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
