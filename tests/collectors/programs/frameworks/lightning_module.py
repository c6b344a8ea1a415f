"""Lightning: a classifier with automatic optimisation, or (`manual`) a small GAN with two optimizers.

Arguments: `manual`; `bf16`; `no-zero-grad` (manual: the generator's is never cleared); `nan`; `two-loaders`;
`callback` (with tracelyze's callback).
"""

import sys
import warnings

import lightning
import told
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"hidden": 32, "api_key": "hf_" + "Q" * 34})
        self.net = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
        self.losses, self.evals, self.seen = [], [], []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        if "nan" in sys.argv and self.global_step >= 12:
            loss = loss + torch.log(y.sum() * 0.0 - 1.0)
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def on_validation_epoch_start(self):
        self.seen = []

    def validation_step(self, batch, index, dataloader_idx=0):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.seen.append(loss.item())
        self.log("val_loss", loss)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.evals.append(sum(self.seen) / len(self.seen))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 48),
                "interval": "step",
            },
        }


class Gan(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 12))
        self.critic = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(), nn.Linear(16, 1))
        self.losses, self.evals = [], []

    def training_step(self, batch, index):
        x, _ = batch
        generate, judge = self.optimizers()
        ones, zeros = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        bce = F.binary_cross_entropy_with_logits
        fake = self.generator(torch.randn(len(x), 4))
        self.toggle_optimizer(judge)
        loss = bce(self.critic(x), ones) + bce(self.critic(fake.detach()), zeros)
        judge.zero_grad()
        self.manual_backward(loss)
        judge.step()
        self.untoggle_optimizer(judge)
        self.toggle_optimizer(generate)
        cost = bce(self.critic(fake), ones)
        if "no-zero-grad" not in sys.argv:
            generate.zero_grad()
        self.manual_backward(cost)
        self.clip_gradients(generate, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        generate.step()
        self.untoggle_optimizer(generate)
        self.losses.append([loss.item(), cost.item()])

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.generator.parameters(), lr=1e-3),
            torch.optim.Adam(self.critic.parameters(), lr=1e-3),
        )


told.seed()
x, y = told.samples()
manual = "manual" in sys.argv
model = Gan() if manual else Classifier()
train = DataLoader(TensorDataset(x[:128], y[:128]), batch_size=8, shuffle=True)
valid = [DataLoader(TensorDataset(x[128:], y[128:]), batch_size=16)]
if "two-loaders" in sys.argv:
    valid.append(DataLoader(TensorDataset(x[160:], y[160:]), batch_size=16))
callbacks = []
if "callback" in sys.argv:
    from tracelyze.integrations.lightning import TracelyzeCallback

    callbacks.append(TracelyzeCallback())
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about few loader workers
    trainer = lightning.Trainer(
        max_epochs=6,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        log_every_n_steps=1,
        precision="bf16-mixed" if "bf16" in sys.argv else "32-true",
        **({} if manual else {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0}),
    )
    trainer.fit(model, train, valid if not manual else None)
told.tell(model, steps=trainer.global_step, losses=model.losses, evals=model.evals)
