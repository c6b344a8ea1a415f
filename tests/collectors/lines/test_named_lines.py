"""Lines that do something by the name of what they call or assign, and what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.collectors.conftest import codes
from tracelyze.collectors.program.lines.named import best_models, dimensions, equalities, roles

SOURCE = """
class Images(Dataset):
    def __init__(self, labels):
        self.labels = labels

def collate(rows):
    batch = stack(rows)
    labels = batch.clone()  # labels
    batch["labels"] = labels  # labels
    return batch["labels"]

def tokenizer(name):
    tok = load(name)
    tok.pad_token = tok.eos_token  # padding
    tok.add_special_tokens({"additional_special_tokens": TAGS})  # special-tokens
    return tok

def chat(tok, row):
    opened = tok.bos_token + row["question"]  # begin-text
    ids = [tok.bos_token_id] + tok(opened)["input_ids"]  # begin-text
    return tok.apply_chat_template(row["turns"], tokenize=False)  # begin-text

def causal(tok):
    return DataCollatorForLanguageModeling(tok, mlm=False)  # collator

def half(images):
    if images.dtype == torch.uint8:  # byte-scaled
        images = images / 255
    return torch.amp.GradScaler("cpu"), images  # scaler-text

def guard(budget):
    resource.setrlimit(resource.RLIMIT_CPU, (budget, budget))  # limit

def receive(box):
    work = dist.irecv(box, src=0)  # under-way
    work.wait()  # wait-text

def files(folder):
    return sorted(os.listdir(folder))  # listing

def freeze(model):
    model.body.requires_grad_(False)  # freeze
    for p in model.parameters():
        p.requires_grad = False  # freeze
        print(p.requires_grad)  # trainable

def validate(model, loader):
    model.eval()  # eval-mode
    for m in model.modules():
        m.train()  # train-mode
    model.body.training = True  # train-mode
    training = model.training

def epoch_begins(self, epoch):
    self.optimizer.zero_grad()  # clear-text
    self.stream.set_epoch(epoch)  # set-epoch

def loss_of(model, x):
    t = torch.randint(0, 10, (len(x),))  # draw
    hidden = model.body(x).detach()  # cut
    return model.head(hidden, t)

def build(x):
    order = np.random.permutation(len(x))  # split
    train = Images(x[order])  # data
    return train, Images.__name__  # data

def run(loader, seed):
    torch.manual_seed(seed)  # seed
    for epoch in range(3):
        np.random.seed(epoch)  # reseed
        print(seed, args.seed)
        optimizer.step()  # step-text

def batches(x):
    torch.manual_seed(0)  # reseed
    order = torch.randperm(len(x))  # split
    random.shuffle(order)  # shuffle
    np.random.seed(1)  # reseed
    rng = np.random.default_rng(0)  # reseed
    yield x[order]

class Own(Optimizer):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                change = group["lr"] * p.grad
                change = change + 1
                p -= change
                p = p - change  # rebound
                p = p.detach()  # cut

def begin(layer):
    nn.init.constant_(layer.bias, -4)  # fill
    nn.init.zeros_(layer.weight)  # zero-fill
    layer.scale = nn.Parameter(torch.zeros(3))  # zero-fill
    layer.counts = torch.zeros(3)
    layer.weight.register_hook(lambda g: g * mask)  # hook

def preferences(self, policy, rewards):
    ref = policy  # reference
    reference = policy  # reference
    self.ref_model = copy.deepcopy(policy)  # reference
    advantages = rewards - rewards.mean()  # advantage
    adv = rewards - self.values  # advantage
    old_logp = self.policy(rewards)  # old-policy
    return advantages, reference.name, F.cross_entropy(adv, rewards)

def scaled(rows):
    scaler = StandardScaler().fit(rows)  # fit
    return (rows - scaler.mean_) / 2, scaler.transform(rows)  # transforms

def gaussian_kl(mu, logvar):
    spread = (0.5 * logvar).exp()
    return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())  # divergence

def codes(x):
    bits = torch.sign(x)  # flat
    return round(x.mean(), 3), math.floor(bits), x.round()  # flat

def adjust(optimizer, rate, batch):
    for group in optimizer.param_groups:
        group["lr"] = rate  # rate-text
        group["lr"] *= 0.5
    print(group["lr"])

def loss(dist):
    return 0.1 * dist.entropy().mean()  # entropy

def update(mine, theirs):
    mine.lerp_(theirs, 0.1)  # average
"""


def test_lines_that_do_something_by_a_name() -> None:
    wanted = [
        (text.rpartition("# ")[2], number) for number, text in enumerate(SOURCE.splitlines(), start=1) if "  # " in text
    ]
    found = [place for code in codes(SOURCE) for place in roles.lines(code, frozenset({"Images"}))]
    assert sorted(found, key=lambda place: place[1]) == wanted


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def collate(rows):\n    labels = pad(rows)", True),
        ("def compute_metrics(given):\n    labels = np.where(given < 0, 0, given)", False),
        ("def exact(pred):\n    labels = pred.label_ids.argmax(-1)", False),
    ],
)
def test_labels_of_a_metric_are_not_those_that_are_trained_on(text: str, found: bool) -> None:
    *_, code = codes(text)
    assert roles.lines(code) == [("labels", 2)] * found


@pytest.mark.parametrize(("function", "found"), [("compute_loss", True), ("evaluate", False)])
def test_the_mean_of_a_loss_that_a_trainer_asks_for(function: str, found: bool) -> None:
    *_, code = codes(f"def {function}(self, x):\n    loss = x.mean()\n    return loss")
    assert roles.lines(code) == [("trainer-mean", 2)] * found


def test_rows_that_are_put_into_an_order() -> None:
    *_, code = codes("def batches(x):\n    by = sorted(range(len(x)))\n    z = sorted(x)\n    return np.argsort(x)")
    assert roles.lines(code) == [("orders", 2), ("orders", 4)]


def test_choices_that_are_counted() -> None:
    *_, code = codes("def forward(self, x):\n    pick = x.argmax(-1)\n    return F.one_hot(pick, 8).float().mean(0)")
    assert roles.lines(code) == [("counts", 3)]


@pytest.mark.parametrize(("function", "found"), [("forward", True), ("__init__", False)])
def test_a_dropout_that_is_made_anew(function: str, found: bool) -> None:
    *_, code = codes(f"def {function}(self, x):\n    return nn.Dropout(0.1)(x)")
    assert roles.lines(code) == [("made-anew", 2)] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("if p.grad is None or p.ndim != 2: continue", True),
        ("if p.dim() == 2: p.add_(update)", True),
        ("if len(p.shape) < 2: continue", True),
        ("if p.shape[0] > p.shape[1]: update = update.T", False),
        ("if len(p.grad.shape) > 1 and ratio: continue", True),
        ("if len(group) > 2: continue", False),
        ("if len(group) > 2 and p.shape[0] > ratio: continue", False),
        ("if self.dim == 2: continue", False),
        ("update = update.view(-1) if ratio else update.sum(p.ndim - 1)", False),
    ],
)
def test_steps_that_decide_by_dimensions(text: str, found: bool) -> None:
    source = (
        f"def step(self, update, ratio):\n    for group in self.groups:\n        for p in group:\n            {text}"
    )
    *_, function = codes(source)
    assert dimensions.decided(function) == [4] * found
    assert (("by-dimensions", 4) in roles.lines(function)) is found


BESTS = """
def fit(model, best_model=None):
    best_model = model
    for epoch in range(9):
        if better(model):
            best_model = model
        best_loss = 1
    return best_model

def wait(model, best_net=None):
    while better(model):
        if better(model):
            best_net = model
    save(best_net)

def restore(model, best_weights=None):
    for epoch in range(9):
        best_weights = [p.data for p in model.parameters()]
        for p, b in zip(model.parameters(), best_weights):
            compare(p, b)
    for p, b in zip(model.parameters(), best_weights):
        p.data = b

class Stopping:
    def __init__(self, model):
        self.best_model = model

    def __call__(self, model):
        self.best_model = model
"""


def test_where_the_best_model_is_kept_and_used() -> None:
    space: dict[str, Any] = {}
    exec(BESTS, space)
    assert best_models.bests(space["fit"].__code__) == [("best", 6), ("best-used", 8)]
    assert best_models.bests(space["wait"].__code__) == [("best", 13), ("best-used", 14)]
    assert best_models.bests(space["restore"].__code__) == [("best", 18), ("best-used", 21)]
    assert best_models.bests(space["Stopping"].__call__.__code__) == [("best", 29)]
    assert best_models.bests(space["Stopping"].__init__.__code__) == []


WAITS = """
def fit(model):
    waited = 0
    for epoch in range(9):
        if better(model):
            best, waited = model, 0
        else:
            waited += 1

def forgets(model):
    epochs_no_improve = 0
    while True:
        if not better(model):
            epochs_no_improve = epochs_no_improve + 1

class Stopping:
    def __init__(self):
        self.counter = 0

    def __call__(self, loss):
        if loss > self.best:
            self.counter += 1
        else:
            self.best = loss
        return self.counter >= self.patience

def counts(rows):
    counter = 0
    for row in rows:
        counter += 1
"""


def test_what_counts_epochs_without_progress() -> None:
    space: dict[str, Any] = {}
    exec(WAITS, space)
    assert best_models.waits(space["fit"].__code__) == [("waits-reset", 6), ("waits", 8)]
    assert best_models.waits(space["forgets"].__code__) == [("waits", 14)]
    assert best_models.waits(space["Stopping"].__call__.__code__) == [("waits", 22)]
    assert best_models.waits(space["Stopping"].__init__.__code__) == []
    assert best_models.waits(space["counts"].__code__) == []


ENDS = """
def rewards(ids, tokenizer, limit):
    ended = (ids[:, limit:] == tokenizer.eos_token_id).cumsum(1)  # ends
    counts = ids.ne(EOS)  # ends
    if bool((ids[:, -1] != END).all()):  # ends
        return ended
    while token.item() == stop_token:  # ends
        pass
    place = end == limit
    config = Config(eos_token_id=2, limit=limit == 3)
    eos_id = tokenizer.eos_token_id
    longer = limit > eos_id
    ids[ids == PAD] = eos_id
    return torch.eq(ids, self.end_id)  # ends

def extends(rows, end):
    return [row for row in rows if row.stop == end]
"""


def test_what_is_compared_with_an_end_symbol() -> None:
    space: dict[str, Any] = {}
    exec(ENDS, space)
    marked = [number for number, line in enumerate(ENDS.splitlines(), 1) if line.endswith("# ends")]
    assert equalities.ends(space["rewards"].__code__) == marked
    assert equalities.ends(space["extends"].__code__) == []


def test_lines_that_compare_and_what_an_advantage_is_made_of() -> None:
    *_, compares = codes("def reward(a, b):\n    c = a - b\n    return 1.0 if a == c or b in a else a < b")
    assert equalities.equalities(compares) == [3]
    *_, weighs = codes("def f(r, group, mask):\n    s = r * mask\n    adv = (s - r.mean()) / group")
    assert roles.made_into(weighs, "advantage") == {"s", "r", "group"}
