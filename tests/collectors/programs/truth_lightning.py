"""What truth.py does, with Lightning: automatic and manual optimization."""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.nn import functional
from truth import classifier, loaded, mean, norm_of, tell_all

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(lightning.LightningModule):
    def __init__(self, truth, columns):
        super().__init__()
        self.truth, self.columns = truth, columns
        self.net = classifier()
        self.values, self.samples, self.seen, self.held = [], 0, [], 0

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = functional.cross_entropy(self(x), y)
        self.values.append(loss.item())
        self.samples += len(x)
        return loss

    def on_after_backward(self):
        self.norm = norm_of(self.parameters())

    def on_before_optimizer_step(self, optimizer):
        count = len(self.values)
        self.truth.step(
            loss=mean(self.values),
            backwards=count,
            microbatches=count,
            batch_size=self.samples,
            grad_norm=self.norm,
            loader_batches=count,
            lr=optimizer.param_groups[0]["lr"],
            clips=1,
            clip_max_norm=0.1,
            model_in_train=True,
            grads_none=0,
            grads_carried=0,
            **self.columns,
        )
        self.values, self.samples = [], 0

    def validation_step(self, batch, index):
        x, y = batch
        self.seen.append(functional.cross_entropy(self(x), y).item())
        self.held += len(x)

    def on_validation_epoch_end(self):
        self.truth.evaluated(
            loss=mean(self.seen), forwards=len(self.seen), losses=len(self.seen), samples=self.held,
            model_in_train=False, grad_mode=int(torch.is_inference_mode_enabled()), trained=True,
        )  # fmt: skip
        self.seen, self.held = [], 0

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Gan(lightning.LightningModule):
    def __init__(self, truth):
        super().__init__()
        self.automatic_optimization = False
        self.truth = truth
        self.generator = nn.Linear(4, 8)
        self.critic = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 1))

    def training_step(self, batch, index):
        x, _ = batch
        critic, generator = self.optimizers()
        bce = functional.binary_cross_entropy_with_logits
        fake = self.generator(torch.randn(len(x), 4))
        self.toggle_optimizer(critic)
        loss = bce(self.critic(x), torch.ones(len(x), 1)) + bce(self.critic(fake.detach()), torch.zeros(len(x), 1))
        critic.zero_grad()
        self.manual_backward(loss)
        self.step(0, critic, loss, x, self.critic, 0.01)
        self.untoggle_optimizer(critic)
        self.toggle_optimizer(generator)
        loss = bce(self.critic(fake), torch.ones(len(x), 1))
        generator.zero_grad()
        self.manual_backward(loss)
        self.step(1, generator, loss, x, self.generator, 0.02)
        self.untoggle_optimizer(generator)

    def step(self, number, optimizer, loss, x, model, rate):
        norm = norm_of(model.parameters())
        self.clip_gradients(optimizer, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
        self.truth.step(number, loss=loss.item(), backwards=1, batch_size=len(x), grad_norm=norm, lr=rate, clips=1)
        optimizer.step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.critic.parameters(), lr=0.01), torch.optim.Adam(
            self.generator.parameters(), lr=0.02
        )


def fit(model, *loaders, **settings):
    usual = {
        "max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about few loader workers
        lightning.Trainer(**usual | settings).fit(model, *loaders)


def automatic(truth):
    model = Classifier(truth, {"autocast": 0})
    fit(model, loaded(45), loaded(20, 8, seed=1), gradient_clip_val=0.1)


def automatic_with_accumulation(truth):
    """8 batches an epoch: the last step has two of them."""
    model = Classifier(truth, {})
    fit(model, loaded(45), loaded(20, 8, seed=1), gradient_clip_val=0.1, accumulate_grad_batches=3)


def automatic_in_bfloat16(truth):
    model = Classifier(truth, {"autocast": 2})
    fit(model, loaded(45), loaded(20, 8, seed=1), gradient_clip_val=0.1, precision="bf16-mixed")


def manual(truth):
    fit(Gan(truth), loaded())


IDIOMS = (automatic, automatic_with_accumulation, automatic_in_bfloat16, manual)

if __name__ == "__main__":
    tell_all(IDIOMS)
