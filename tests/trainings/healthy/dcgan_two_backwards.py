"""DCGAN-like training on 8x8 images: two backwards for the discriminator (real, fake), then one for the generator."""

import torch
from torch import nn


def weights_init(m):
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.05)
    elif name.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def crosses(n):
    image = -torch.ones(n, 1, 8, 8)
    for k in range(n):
        r, c = torch.randint(1, 7, (2,)).tolist()
        image[k, 0, r, :] = 1.0
        image[k, 0, :, c] = 1.0
    return image


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    netG = nn.Sequential(
        nn.ConvTranspose2d(12, 24, 4, 1, 0, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(True),
        nn.ConvTranspose2d(24, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    netD = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 32, 4, 1, 0, bias=False),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(32, 1, 1),
    )
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for i in range(200):
        netD.zero_grad()
        real = crosses(32)
        label = torch.full((32,), 1.0)
        errD_real = criterion(netD(real).view(-1), label)
        errD_real.backward()
        noise = torch.randn(32, 12, 1, 1)
        fake = netG(noise)
        label.fill_(0.0)
        errD_fake = criterion(netD(fake.detach()).view(-1), label)
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(netD(fake).view(-1), label)
        errG.backward()
        optimizerG.step()
        if i % 40 == 0:
            print(f"[{i}/200] Loss_D: {errD_real.item() + errD_fake.item():.4f} Loss_G: {errG.item():.4f}")


if __name__ == "__main__":
    main()
