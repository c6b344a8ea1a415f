"""Keeps secrets out of what is recorded: command lines, source lines, messages, the environment.

A run directory ends up in tickets and chats. Whatever is written to it passes through here first. When in doubt a value
is dropped: a hidden option costs a question, a leaked token costs an evening.

Plain standard library: this is imported inside the training process. Every pattern is linear in the text's length
(possessive quantifiers, and look-behinds that let a run of word characters be entered only at its start).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

MARK: Final = "[redacted]"

_STRONG: Final = re.compile(
    r"passw(?:or)?d|passwort|passphrase|passcode|secret|credential"
    r"|api_?keys?|auth_?token|(?:access|private|signing|encryption|account|license|ssh|deploy|client|service)_?keys?"
    r"|(?:access|bearer|refresh|session|identity|id|hub|hf|wandb|bot|github|gitlab)_?tokens?(?![a-z])"
    r"|(?:^|_)(?:auth|authorization|pwd|pat|apikey|jwt|cookie)(?:_|$)|(?:wandb|comet|hf|hub|openai|neptune)_?key(?:_|$)"
)
_WEAK: Final = re.compile(r"(?:^|_)(key|token)$")
# A special token of a vocabulary, a dictionary key, a key of attention: words that say so in front of `token` or `key`.
_HARMLESS_BEFORE: Final = frozenset(
    "additional audio batch begin bos class cls column data dict eos end feature group image img input label mask max"
    " memory metric min modality monitor new next num object output pad per prompt query register sample sep sort"
    " special start stop target task text unk video".split()
)
_HARMLESS_VALUE: Final = re.compile(
    r"(?i:true|false|yes|no|on|off|none|null|0|1|)|<[A-Za-z_|/ ]{1,24}>|\[[A-Za-z_]{1,16}\]|\S{1,200}\.py"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OPTION: Final = re.compile(r"--[A-Za-z]\S*|-[A-Za-z]")
_ASSIGNABLE: Final = re.compile(r"[\w.\-+~/@]++")

_SHAPES: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
    r"|(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}+"  # Hugging Face
    r"|sk-(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,}+"  # OpenAI, Anthropic
    r"|gh[oprsu]_[A-Za-z0-9]{16,}+|github_pat_[A-Za-z0-9_]{16,}+|glpat-[A-Za-z0-9_-]{16,}+"  # GitHub, GitLab
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}+"  # AWS
    r"|xox[a-z]-[A-Za-z0-9-]{8,}+|xapp-[A-Za-z0-9-]{8,}+"  # Slack
    r"|eyJ[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{6,}+(?:\.[A-Za-z0-9_-]*+)?"  # JSON web token
    r"|AIza[A-Za-z0-9_-]{24,}+|ya29\.[A-Za-z0-9_-]{16,}+"  # Google
    r"|npm_[A-Za-z0-9]{24,}+|pypi-[A-Za-z0-9_-]{24,}+|dckr_pat_[A-Za-z0-9_-]{16,}+"
    r"|wandb_v[0-9]_[A-Za-z0-9_]{16,}+"
    r")"
)
_USERINFO: Final = re.compile(r"://(?!git@)[^\s/'\"<>]*@")
_WEBHOOK: Final = re.compile(r"(hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/)[^\s'\"<>\[]++")
_HEADER: Final = re.compile(
    r"(?i)\b(authorization|x-api-key|x-auth-token|set-cookie|cookie)(['\"]?\s{0,8}+[:=]\s{0,8}+['\"]?)([^\r\n'\"]++)"
)
_SCHEME: Final = re.compile(r"(?i)\b(bearer|basic)(\s{1,8}+)([A-Za-z0-9._~+/=-]{8,}+)")
_LOGIN: Final = re.compile(r"(?i)\b(login\s{1,8}+)([A-Fa-f0-9]{32,}+)")
_NAME: Final = re.compile(
    r"(?:(?<![\w.\-])|(?<=[?&]))(?P<name>--[\w.\-/]++|[\w.\-]++)"
    r"(?P<separator>['\"\])]{0,3}\s{0,8}+(?:=>|:=|[=:])\s{0,8}+|['\"]\s{0,8}+,\s{0,8}+(?=['\"])|(?P<space>\s{1,8}+))"
)
_VALUE: Final = re.compile(
    r"\[redacted\]|(?P<prefix>[bBfFrRuU]{0,2})(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\r\n])*+)|[^\s,;&'\"<>(){}\[\]:=]++(?:[:=][^\s,;&'\"<>(){}\[\]:=]*+){0,64}+"
)


def redact_argv(arguments: Sequence[str]) -> list[str]:
    """The command line with every secret value replaced by :data:`MARK`; same length, same order.

    Hides the value of options and assignments whose name speaks of a secret (`--api-key X`, `--password=X`,
    `WANDB_API_KEY=X`, `logger.token=X`) and whatever :func:`redact_text` hides.
    """
    hidden: list[str] = []
    after_secret_name = False
    for argument in arguments:
        if after_secret_name and not _OPTION.fullmatch(argument):
            hidden.append(argument if _HARMLESS_VALUE.fullmatch(argument) else MARK)
            after_secret_name = False
            continue
        name, assigned, value = argument.partition("=")
        if assigned and _ASSIGNABLE.fullmatch(name) and _strength(name):
            hidden.append(argument if _HARMLESS_VALUE.fullmatch(value) else f"{name}={MARK}")
            after_secret_name = False
        else:
            hidden.append(redact_text(argument))
            after_secret_name = argument.startswith("-") and not assigned and _strength(argument) > 0
    return _hide_login_keys(arguments, hidden)


def redact_text(text: str) -> str:
    """A message, traceback or source line with every secret in it replaced by :data:`MARK`.

    Hides tokens of well-known shapes, private keys, user and password of URLs, authorization headers, and the values of
    names that speak of a secret (`password=X`, `"api_key": "X"`, `--token X`).
    """
    text = _SHAPES.sub(MARK, text)
    text = _USERINFO.sub(f"://{MARK}@", text)
    text = _WEBHOOK.sub(rf"\1{MARK}", text)
    text = _HEADER.sub(rf"\1\2{MARK}", text)
    text = _SCHEME.sub(rf"\1\2{MARK}", text)
    text = _LOGIN.sub(rf"\1{MARK}", text)
    return _hide_values(text)


ENVIRONMENT: Final = frozenset(
    """
    ACCELERATE_MIXED_PRECISION CUBLAS_WORKSPACE_CONFIG CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING
    CUDA_MODULE_LOADING CUDA_VISIBLE_DEVICES GROUP_RANK HIP_VISIBLE_DEVICES KMP_AFFINITY LOCAL_RANK LOCAL_WORLD_SIZE
    MKL_NUM_THREADS NCCL_ALGO NCCL_DEBUG NCCL_IB_DISABLE NCCL_NET_GDR_LEVEL NCCL_P2P_DISABLE NCCL_PROTO
    NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME NODE_RANK NUMEXPR_NUM_THREADS NVIDIA_TF32_OVERRIDE OMP_NUM_THREADS
    OPENBLAS_NUM_THREADS PYTHONFAULTHANDLER PYTHONHASHSEED PYTHONUNBUFFERED PYTORCH_ALLOC_CONF
    PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING RANK ROCR_VISIBLE_DEVICES
    SLURM_JOB_NUM_NODES SLURM_LOCALID SLURM_NTASKS SLURM_PROCID TOKENIZERS_PARALLELISM TORCHDYNAMO_DISABLE
    TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RESTART_COUNT TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_COMPILE_DISABLE
    TORCH_CPP_LOG_LEVEL TORCH_DISTRIBUTED_DEBUG TORCH_LOGS TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_BLOCKING_WAIT
    TORCH_NCCL_ENABLE_MONITORING TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC WORLD_SIZE
    """.split()
)
"""Variables that change how a training runs. Nothing else of the environment is ever recorded."""


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environ` named in :data:`ENVIRONMENT`, sorted by name, secrets in their values hidden."""
    return {name: redact_text(environ[name]) for name in sorted(ENVIRONMENT & environ.keys())}


def _strength(name: str) -> int:
    """2: the name speaks of a secret. 1: it is a bare `key` or `token`, which may be one. 0: it is harmless."""
    words = re.split(r"[^a-z0-9]+", _CAMEL.sub("_", name).lower().replace("-", "_"))
    joined = "_".join(word for word in words if word)
    if _STRONG.search(joined):
        return 2
    if not _WEAK.search(joined):
        return 0
    before = joined.split("_")[-2:-1]
    if not before:
        return 1
    return 0 if before[0] in _HARMLESS_BEFORE else 2


def _hide_values(text: str) -> str:
    """Hides the values of secret names. A value that stays is looked into again: `--env=API_KEY=X` holds two names."""
    kept: list[str] = []
    done = position = 0
    while match := _NAME.search(text, position):
        position = match.end("name")
        strength = _strength_in_text(text, match)
        if strength == 0:
            continue
        value = _VALUE.match(text, match.end())
        if value is None or (match["space"] and _OPTION.fullmatch(value[0])):
            continue
        quote, bare = value["quote"] or "", value["quoted"] if value["quote"] else value[0]
        is_literal = bool(quote) or (len(bare) >= 8 and any(map(str.isdigit, bare)))
        if (strength == 1 and not is_literal) or _HARMLESS_VALUE.fullmatch(bare):
            continue
        kept += [text[done : match.end()], value["prefix"] or "", quote, MARK]
        done = position = value.end()
    return "".join(kept) + text[done:]


def _strength_in_text(text: str, match: re.Match[str]) -> int:
    """Like :func:`_strength`, sure where an option or a URL's query names it, 0 where only a space follows a word."""
    name = match["name"]
    if name.startswith("--"):
        return 2 * _strength(name)
    if match["space"]:
        return 0
    if match.start() > 0 and text[match.start() - 1] in "?&":
        return 2 if name.lower() in ("sig", "signature", "x-amz-signature") else 2 * _strength(name)
    return _strength(name)


def _hide_login_keys(arguments: Sequence[str], hidden: list[str]) -> list[str]:
    """`wandb login KEY`: a bare key of 32 or more hexadecimal digits after the word `login`."""
    if "login" not in arguments:
        return hidden
    start = arguments.index("login")
    return hidden[:start] + [
        MARK if re.fullmatch(r"[0-9a-fA-F]{32,}", argument) else argument for argument in hidden[start:]
    ]
