"""No secret reaches a run directory, and ordinary arguments do."""

from __future__ import annotations

import re
import string
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelyze.redaction import ENVIRONMENT, MARK, allowed_environment, redact_argv, redact_text

# A secret: long and random enough that it cannot be part of anything else in a generated text.
WORDS = string.ascii_letters + string.digits
SECRETS = st.text(WORDS, min_size=12, max_size=40).filter(lambda secret: any(map(str.isdigit, secret)))
LOOSE = st.text(alphabet=st.sampled_from("abk=:;,'\"[](){}<>-_.@/&? \n\\0hfkey_token"), max_size=60)

SECRET_NAMES = [
    "api-key", "api_key", "apikey", "apiKey", "token", "hf_token", "hub-token", "key", "secret", "client_secret",
    "password", "db.password", "passwd", "auth", "auth-token", "credentials", "wandb_key",
    "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN",
    "access_token", "logger.wandb.api_key", "aws-access-key-id", "private_key", "trainer/comet_api_key",
]  # fmt: skip
HARMLESS = [
    ["python", "train.py", "--lr", "3e-4", "--batch-size=64"],
    ["--tokenizer", "bert-base-uncased", "--tokenizer_name=gpt2", "--tokens", "1e9"],
    ["--max-tokens", "512", "--max_new_tokens=128", "--num-tokens", "4096", "--token-dim", "64"],
    ["--keypoints", "17", "--key-dim=64", "--keyframes", "3", "--sort-key", "length", "--image-key=jpg"],
    ["--pad-token", "<pad>", "--mask_token=[MASK]", "--eos-token", "</s>", "--token", "<s>"],
    ["--author", "someone", "--monkey", "1", "--turkey=2", "--compass", "north", "--bypass"],
    ["--use-auth-token", "--lr", "1e-3"],
    ["--use-auth-token", "True", "train.py"],
    ["torchrun", "--nproc-per-node", "2", "--rdzv-endpoint=host:29500", "-m", "package.train", "--seed=0"],
    ["python", "-c", "import torch; print(sorted(range(3), key=lambda x: -x))"],
    ["git", "clone", "git+ssh://git@github.com/org/repo", "--depth", "1"],
    ["--commit", "0123456789abcdef0123456789abcdef01234567"],
    ["--data", "s3://bucket/token/key/part-000.parquet", "--config", "configs/secrets-of-attention.yaml"],
]
HARMLESS_TEXT = [
    'target_modules=["query", "key", "value", "dense"]',
    'target_modules=["key", "attention.output.dense"]',
    "        loss = criterion(model(batch['token_ids']), batch['labels'])",
    "for key, token in items:",
    "key = jax.random.PRNGKey(0)",
    "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors).",
    "KeyError: 'decoder.weight'",
    'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "fc.weight".',
    "size mismatch for cls_token: copying a param with shape torch.Size([1, 1, 768]) from checkpoint",
    "mat1 and mat2 shapes cannot be multiplied (64x128 and 64x10)",
    "num_tokens=4096, key_dim: 64, max_tokens = 512",
]


@pytest.mark.parametrize("arguments", HARMLESS, ids=" ".join)
def test_ordinary_arguments_are_left_alone(arguments: list[str]) -> None:
    assert redact_argv(arguments) == arguments


@pytest.mark.parametrize("text", HARMLESS_TEXT)
def test_ordinary_lines_are_left_alone(text: str) -> None:
    assert redact_text(text) == text


@settings(max_examples=600)
@given(secret=SECRETS, name=st.sampled_from(SECRET_NAMES), form=st.integers(0, 6), before=st.sampled_from(HARMLESS))
def test_no_named_secret_survives_in_a_command_line(secret: str, name: str, form: int, before: list[str]) -> None:
    given_as = [
        [f"--{name}", secret],
        [f"--{name}={secret}"],
        [f"{name}={secret}"],
        ["env", f"{name}={secret}", "python"],
        [f"+{name}={secret}"],
        [f"--env={name}={secret}"],
        ["--config", f'{{"{name}": "{secret}", "lr": 1}}'],
    ][form]
    hidden = redact_argv([*before, *given_as, "--lr", "1e-3"])
    assert secret not in " ".join(hidden)
    assert len(hidden) == len(before) + len(given_as) + 2
    assert hidden[-2:] == ["--lr", "1e-3"]


@settings(max_examples=600)
@given(secret=SECRETS, name=st.sampled_from(SECRET_NAMES), form=st.integers(0, 7))
def test_no_named_secret_survives_in_a_text(secret: str, name: str, form: int) -> None:
    text = [
        f"login({name.replace('-', '_')}='{secret}')",
        f'{{"{name}": "{secret}"}}',
        f"--{name} {secret}",
        f"--{name}={secret}",
        f"['train.py', '--{name}', '{secret}']",
        f"os.environ.get('{name}', \"{secret}\")",
        f"headers['{name}'] = f'{secret}'",
        f"https://host/path?a=1&{name}={secret}&b=2",
    ][form]
    for line in (text, f"    {text}\nValueError: {text}"):
        assert secret not in redact_text(line)


SHAPES = [
    "sk_live_{}", "rk_test_{}", "SG.{}.{}", "ntn_{}", "lin_api_{}", "glsa_{}", "gldt-{}", "r8_{}", "gsk_{}", "pplx-{}",
    "xai-{}", "nvapi-{}", "lsv2_pt_{}", "pcsk_{}", "KGAT_{}", "sntrys_{}", "sq0atp-{}", "pscale_tkn_{}", "dp.pt.{}",
    "ATATT3{}", "AKCp{}", "LTAI{}", "AKID{}", "EAA{}", "hvs.{}", "secret_{}", "fw_{}", "tgp_v1_{}", "nfp_{}", "pnu_{}",
    "12345678:AA{}", "abcdefghij0123.atlasv1.{}", "HRKU-{}",
    "hf_{}", "sk-{}", "sk-proj-{}", "ghp_{}", "gho_{}", "github_pat_{}", "glpat-{}", "xoxb-12-{}", "AIza{}", "ya29.{}",
    "wandb_v1_{}", "npm_{}", "eyJhbGciOiJI.{}.c2ln",
]  # fmt: skip


@given(shape=st.sampled_from(SHAPES), body=st.text(WORDS, min_size=36, max_size=60), around=LOOSE)
def test_tokens_of_known_shapes_are_hidden_anywhere(shape: str, body: str, around: str) -> None:
    secret = shape.format(*[f"0{body}"] * shape.count("{}"))
    assert secret not in redact_text(f"{around} {secret} {around}")
    assert secret not in " ".join(redact_argv([around, secret, f"--name={secret}"]))


@given(body=st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16))
def test_aws_key_ids_are_hidden(body: str) -> None:
    assert redact_text(f"using AKIA{body}.") == f"using {MARK}."


@given(user=SECRETS, password=SECRETS, glue=st.sampled_from([":", ":a@", "%3A"]))
def test_url_credentials_are_hidden(user: str, password: str, glue: str) -> None:
    url = f"postgresql://{user}{glue}{password}@db.example.org:5432/runs?sslmode=on"
    for hidden in (redact_text(f"cannot reach {url}"), *redact_argv([f"--storage={url}"]), *redact_argv([url])):
        assert user not in hidden
        assert password not in hidden
        assert "@db.example.org:5432/runs" in hidden


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abc.def-123456",
        "{'Authorization': 'Basic QWxhZGRpbjpvcGVu'}",
        "curl -H 'X-Api-Key: abc.def-123456' https://host",
        "got header bearer QWxhZGRpbjpvcGVu",
        "Cookie: session=abc.def-123456; other=QWxhZGRpbjpvcGVu",
        "-----BEGIN RSA PRIVATE KEY-----\nQWxhZGRpbjpvcGVu\nabc.def-123456\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nQWxhZGRpbjpvcGVu",
        "posting to https://hooks.slack.com/services/T0/B0/QWxhZGRpbjpvcGVu",
        "wandb login " + "abcdef0123456789" * 3,
    ],
)
def test_headers_private_keys_and_logins_are_hidden(text: str) -> None:
    for secret in ("abc.def-123456", "QWxhZGRpbjpvcGVu", "abcdef0123456789"):
        assert secret not in redact_text(text)
        assert secret not in " ".join(redact_argv(["run", text]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pass", "hunter2secret"], ["-p", "hunter2secret"], ["--user", "me:hunter2secret"],
        ["-u", "me:hunter2secret"],
        ["--tokens", "hunter2secret"], ["DB_PASS=hunter2secret"], ["--authkey", "hunter2secret"],
        ["--sessionid=hunter2secret"], ["me:hunter2secret@db.host/runs"], ["--dsn=me:hunter2secret@db.host/runs"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_passwords_are_hidden_in_command_lines(arguments: list[str]) -> None:
    assert "hunter2secret" not in " ".join(redact_argv(["run", *arguments, "--lr", "1"]))


@pytest.mark.parametrize(
    "text",
    [
        'token: str = "hunter2secret"', 'api_key: Optional[str] = "hunter2secret"', "DB_PASS=hunter2secret",
        "authkey = b'hunter2secret'", "sessionid=hunter2secret", "openai: Incorrect API key provided: hunter2secret.",
        "password is wrong: hunter2secret", "AccountKey=hunter2secret;EndpointSuffix=x",
        "me:hunter2secret@db.host:5432/x",
        "with aB3xK9pLmQ2vT7wZr5YcN8dF1gH4jS6u in it".replace("aB3x", "hunter2secretaB3x"),
    ],
)  # fmt: skip
def test_passwords_are_hidden_in_texts(text: str) -> None:
    assert "hunter2secret" not in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "forward_pass = model(x)", "first_pass: bool = True", "image: pytorch/pytorch:2.1@sha256:0123456789abcdef",
        "TransformerEncoderLayerWithPreNormalizationAndDropout2d", "tokens: Tensor = batch['input_ids']",
        "loss_tokens = tokens.sum()", "--pass 2 --port 29500", "git@github.com:org/repo.git", "step 12:30 at node@host",
    ],
)  # fmt: skip
def test_words_that_look_like_it_are_left_alone(text: str) -> None:
    assert redact_text(text) == text
    assert redact_argv(text.split()) == text.split()


def test_the_key_after_login_is_hidden_in_a_command_line() -> None:
    key = "0123456789abcdef" * 3
    assert redact_argv(["wandb", "login", "--relogin", key]) == ["wandb", "login", "--relogin", MARK]


@given(st.lists(st.one_of(LOOSE, st.text(max_size=30), st.sampled_from([f"--{n}" for n in SECRET_NAMES])), max_size=8))
def test_redacting_twice_changes_nothing(arguments: list[str]) -> None:
    once = redact_argv(arguments)
    assert len(once) == len(arguments)
    assert redact_argv(once) == once
    text = redact_text(" ".join(arguments))
    assert redact_text(text) == text


PIECES = [
    "a", "-", "key:", "a=", "key=\n'", "token='", "'", '"', "://a@", "@a", "sk-", "eyJa.", "bearer ", " ", "a --key ",
    "-----BEGIN PRIVATE KEY-----", "aB", "_key", "api_key:", "&sig=", "cookie:", "login ", "[redacted]",
]  # fmt: skip


@pytest.mark.starts_programs
def test_no_text_makes_it_hang() -> None:
    """A pattern that backtracks needs minutes for one of these texts; all of them together take a few seconds."""
    program = f"""
from tracelyze.redaction import redact_argv, redact_text
for piece in {PIECES!r}:
    text = "secret " + piece * (150_000 // len(piece)) + " x"
    redact_text(text)
    redact_argv(["--x", text])
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_the_environment_is_an_allow_list() -> None:
    environ = {"WORLD_SIZE": "8", "RANK": "3", "HF_TOKEN": "hf_x", "PATH": "/bin", "TORCH_LOGS": "https://u:p@host"}
    assert allowed_environment(environ) == {"RANK": "3", "TORCH_LOGS": f"https://{MARK}@host", "WORLD_SIZE": "8"}


def test_no_allowed_variable_is_named_like_a_secret() -> None:
    assert not [name for name in ENVIRONMENT if re.search("KEY|TOKEN(?!IZERS)|SECRET|PASS|AUTH|CRED", name)]
