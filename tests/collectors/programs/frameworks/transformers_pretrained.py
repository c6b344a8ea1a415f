"""A tiny BERT is saved, loaded with from_pretrained, changed in the way that the argument names, and tuned."""

import sys
import tempfile

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel
from transformers.modeling_outputs import SequenceClassifierOutput

how = sys.argv[1]
torch.manual_seed(0)
FORM = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
}


def fill(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)


def tuned(folder):
    model = BertForSequenceClassification.from_pretrained(folder, num_labels=2)
    if how in ("filled", "frozen"):
        model.apply(fill)
    if how == "head":
        model.classifier.apply(fill)
    if how == "upper half":
        model.bert.encoder.layer[1].apply(fill)
        model.bert.pooler.apply(fill)
    if how == "frozen":
        model.bert.requires_grad_(False)
    return model


class Tagger(nn.Module):
    """As from_pretrained leaves a part of it in eval mode, unless something calls train()."""

    def __init__(self, folder):
        super().__init__()
        self.encoder = BertModel.from_pretrained(folder)
        self.teacher = BertModel.from_pretrained(folder)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 2))
        if how == "part evaluated":
            self.encoder.eval()
        if how == "part frozen":
            self.encoder.requires_grad_(False)

    def forward(self, input_ids, labels):
        states = self.encoder(input_ids).pooler_output
        with torch.no_grad():
            wanted = self.teacher(input_ids).pooler_output
        scores = self.head(states)
        loss = nn.functional.cross_entropy(scores, labels) + 0.1 * nn.functional.mse_loss(states, wanted)
        return SequenceClassifierOutput(loss=loss, logits=scores)


with tempfile.TemporaryDirectory() as folder:
    BertModel(BertConfig(**FORM)).save_pretrained(folder)
    model = Tagger(folder) if how.startswith("part") else tuned(folder)
if how == "part":  # what Lightning does before a training: each module gets back the mode that it had
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    for module, mode in modes:
        module.training = mode
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
if how in ("part trained", "filled", "frozen", "head", "upper half"):
    model.train()
for _ in range(8):
    tokens = torch.randint(5, 64, (16, 12))
    loss = model(input_ids=tokens, labels=(tokens[:, 0] > 33).long()).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if how == "head":
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
print(f"{sum(float(p.detach().sum()) for p in model.parameters()):.9f}")
