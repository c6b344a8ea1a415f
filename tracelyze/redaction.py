"""Keeps secrets out of what is recorded: command lines, source lines, messages, the environment.

A run directory ends up in tickets and chats. Whatever is written to it passes through here first. When in doubt a value
is dropped: a hidden option costs a question, a leaked token costs an evening.

Plain standard library: this is imported inside the training process. Every pattern is linear in the text's length
(possessive quantifiers, and look-behinds that let a run of word characters be entered only at its start).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

MARK: Final = "[redacted]"

_STRONG: Final = re.compile(
    r"passw(?:or)?d|passwort|passphrase|passcode|secret|credential"
    r"|api_?keys?|auth_?token|(?:access|private|signing|encryption|account|license|ssh|deploy|client|service)_?keys?"
    r"|(?:access|bearer|refresh|session|identity|id|hub|hf|wandb|bot|github|gitlab)_?tokens?(?![a-z])"
    r"|(?:^|_)(?:auth|authorization|pwd|pat|apikey|jwt|cookie)(?:_|$)|(?:wandb|comet|hf|hub|openai|neptune)_?key(?:_|$)"
    r"|auth_?key|session_?id(?:_|$)|csrf"
)
_WEAK: Final = re.compile(r"(?:^|_)(key|token|pass)$")
# The plural counts pieces of text far more often than it names secrets: its value has to look like one.
MOST_DIGITS: Final = 11  # of a count; a number of more digits may be a secret
_PLURAL: Final = re.compile(r"(?:^|_)(?:tokens|keys)$")
# A special token of a vocabulary, a dictionary key, a key of attention: words that say so in front of `token` or `key`.
_HARMLESS_BEFORE: Final = frozenset(
    "additional audio backward batch begin bos by class cls column com data dict eos end eval feature first forward"
    " full group high image img input label last low mask max memory metric min modality monitor multi new next num"
    " object one output pad per prompt query register sample second sep single sort special start stop target task"
    " text train two unk val video".split()
)
_NUMBER: Final = re.compile(r"[+-]?[\d_.]+(?:[eE][+-]?\d+)?[kKMGTB]?")
_HARMLESS_VALUE: Final = re.compile(
    r"(?i:true|false|yes|no|on|off|none|null|0|1|)|<[A-Za-z_|/ ]{1,24}>|\[[A-Za-z_]{1,16}\]|\S{1,200}\.py"
    r"|(?:[kqvo]_|[a-z]{1,16}\.){0,4}(?:values?|query|queries|dense|proj)"  # layers of attention, beside its `key`
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
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}+"  # Stripe
    r"|SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"  # SendGrid
    r"|(?:SK|AC)[0-9a-f]{32}(?![0-9a-f])|key-[0-9a-f]{32}(?![0-9a-f])"  # Twilio, Mailgun
    r"|do[opr]_v1_[a-f0-9]{32,}+|dapi[a-f0-9]{32,}+|hv[sb]\.[A-Za-z0-9_-]{20,}+"  # DigitalOcean, Databricks, Vault
    r"|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{20,}+|HRKU-[A-Za-z0-9_-]{20,}+"  # Terraform, Heroku
    # Telegram, Discord, Grafana, GitLab
    r"|[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}+|[MNO][A-Za-z0-9_-]{22,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}+"
    r"|gl(?:c|sa)_[A-Za-z0-9+/=_-]{20,}+|gl(?:dt|rt|cbt|ptt|ft|oas|imt|agent|soat)-[A-Za-z0-9_-]{16,}+"
    r"|lin_api_[A-Za-z0-9]{20,}+|ntn_[A-Za-z0-9]{20,}+|secret_[A-Za-z0-9]{32,}+"  # Linear, Notion
    r"|r8_[A-Za-z0-9]{20,}+|gsk_[A-Za-z0-9]{20,}+|pplx-[A-Za-z0-9]{20,}+|xai-[A-Za-z0-9_-]{20,}+"  # hosts of models
    r"|nvapi-[A-Za-z0-9_-]{20,}+|tgp_v1_[A-Za-z0-9_-]{20,}+|fw_[A-Za-z0-9]{20,}+|lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}+"
    r"|pcsk_[A-Za-z0-9_]{20,}+|KGAT_[A-Za-z0-9]{16,}+|sbp_[a-f0-9]{20,}+|nfp_[A-Za-z0-9]{20,}+"
    r"|sntr(?:ys|yu)_[A-Za-z0-9+/=_-]{20,}+|NRAK-[A-Z0-9]{20,}+|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,}+|sq0[a-z]{3}-[A-Za-z0-9_-]{20,}+"
    r"|pscale_(?:tkn|oauth|pw)_[A-Za-z0-9_.=-]{20,}+|AGE-SECRET-KEY-1[A-Z0-9]{40,}+|ops_eyJ[A-Za-z0-9_-]{20,}+"
    r"|dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9._-]{20,}+|ATATT3[A-Za-z0-9_=-]{20,}+|AKCp[A-Za-z0-9]{20,}+|rubygems_[a-f0-9]{20,}+"
    r"|PMAK-[a-f0-9-]{20,}+|dt0[a-z][0-9]{2}\.[A-Z0-9]{20,}+\.[A-Z0-9]{20,}+|pn[ub]_[A-Za-z0-9]{20,}+"
    r"|LTAI[A-Za-z0-9]{12,}+|AKID[A-Za-z0-9]{20,}+|(?:ABIA|ACCA)[A-Z0-9]{12,}+|EAA[A-Za-z0-9]{30,}+"
    r")"
)
_ACCOUNT: Final = re.compile(r"(?i)\b(AccountKey|SharedAccessKey|SharedAccessSignature)=([^;\s'\"]++)")  # Azure
_USERINFO: Final = re.compile(r"://(?!git@)[^\s/'\"<>]*@")
# `user:password@host` without a scheme; an image with its digest (`name:tag@sha256:...`) is none.
_LOGIN_AT_HOST: Final = re.compile(
    r"(?<![\w/.:@-])([\w.+-]{1,64}+):([^\s:@/'\"<>\[\]]{1,128}+)@(?!sha256:|sha512:|md5:)(?=[\w-]+[.:/])"
)
_SAID: Final = re.compile(
    r"(?i)\b((?:api[ _-]?(?:key|token)|access[ _-]?(?:key|token)|password|passphrase|secret|credentials?)"
    r"(?: [a-z]{1,12}){1,3}: {0,2}['\"]?)([^\s'\",;]{6,}+)"
)
_WORD: Final = re.compile(r"(?<![A-Za-z0-9+/_=.\-])[A-Za-z0-9+_=-]{32,512}+(?![A-Za-z0-9+/_=.\-])")
_ENTROPY: Final = 4.5  # bits a character: the limit for base64 of detect-secrets (Yelp), whose default it is
_WEBHOOK: Final = re.compile(r"(hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/)[^\s'\"<>\[]++")
_HEADER: Final = re.compile(
    r"(?i)\b(authorization|x-api-key|x-auth-token|set-cookie|cookie)(['\"]?\s{0,8}+[:=]\s{0,8}+['\"]?)([^\r\n'\"]++)"
)
_SCHEME: Final = re.compile(r"(?i)\b(bearer|basic)(\s{1,8}+)([A-Za-z0-9._~+/=-]{8,}+)")
_LOGIN: Final = re.compile(r"(?i)\b(login\s{1,8}+)([A-Fa-f0-9]{32,}+)")
_NAME: Final = re.compile(
    r"(?:(?<![\w.\-])|(?<=[?&]))(?P<name>--[\w.\-/]++|[\w.\-]++)"
    r"(?P<separator>\s{0,4}+:\s{0,4}+[A-Za-z_][\w.\[\]|, ]{0,60}?=(?!=)\s{0,8}+"
    r"|['\"\])]{0,3}\s{0,8}+(?:=>|:=|[=:])\s{0,8}+"
    r"|['\"]\s{0,8}+,\s{0,8}+(?=['\"])|(?P<space>\s{1,8}+))"
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
    after_secret_name = after_login = after_short = False
    for argument in arguments:
        if after_secret_name and not _OPTION.fullmatch(argument):
            hidden.append(argument if _is_harmless(argument, arguments[len(hidden) - 1]) else MARK)
            after_secret_name = False
            continue
        if after_login and ":" in argument and not _OPTION.fullmatch(argument):
            hidden.append(f"{argument.partition(':')[0]}:{MARK}")
            after_login = False
            continue
        if after_short and _looks_secret(argument):
            hidden.append(MARK)
            after_short = False
            continue
        after_login, after_short = argument in _LOGIN_OPTIONS, argument == "-p"
        name, assigned, value = argument.partition("=")
        if assigned and _ASSIGNABLE.fullmatch(name) and _strength(name):
            hidden.append(argument if _is_harmless(value, name) else f"{name}={MARK}")
            after_secret_name = False
        else:
            hidden.append(redact_text(argument))
            after_secret_name = argument.startswith("-") and not assigned and _strength(argument) > 0
    return _hide_login_keys(arguments, hidden)


_LOGIN_OPTIONS: Final = frozenset(("-u", "--user", "--userpass", "--proxy-user", "--login"))


def _is_harmless(value: str, name: str) -> bool:
    """Whether the value of an option that is named like a secret is none: a switch, a special token, a count."""
    if _HARMLESS_VALUE.fullmatch(value):
        return True
    counts = name.rstrip("=").lower().endswith(("tokens", "keys", "pass"))
    return counts and _NUMBER.fullmatch(value) is not None and len(value) <= MOST_DIGITS


def _looks_secret(value: str) -> bool:
    """Whether a value of unknown meaning is more likely a password than a number, a path or a word."""
    plain = "/" in value or "." in value or value.startswith("-")
    return not plain and len(value) >= 8 and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def redact_text(text: str) -> str:
    """A message, traceback or source line with every secret in it replaced by :data:`MARK`.

    Hides tokens of well-known shapes, private keys, user and password of URLs, authorization headers, and the values of
    names that speak of a secret (`password=X`, `"api_key": "X"`, `--token X`).
    """
    text = _SHAPES.sub(MARK, text)
    text = _USERINFO.sub(f"://{MARK}@", text)
    text = _LOGIN_AT_HOST.sub(rf"\1:{MARK}@", text)
    text = _ACCOUNT.sub(rf"\1={MARK}", text)
    text = _SAID.sub(_hide_said, text)
    text = _WEBHOOK.sub(rf"\1{MARK}", text)
    text = _HEADER.sub(rf"\1\2{MARK}", text)
    text = _SCHEME.sub(rf"\1\2{MARK}", text)
    text = _LOGIN.sub(rf"\1{MARK}", text)
    return _WORD.sub(_hide_random, _hide_values(text))


def _hide_said(match: re.Match[str]) -> str:
    """`Incorrect API key provided: X`: what a service repeats of a secret that it refused."""
    return match[0] if _HARMLESS_VALUE.fullmatch(match[2]) or match[2].isalpha() else f"{match[1]}{MARK}"


def _hide_random(match: re.Match[str]) -> str:
    """Hides a long word of capitals, small letters and digits in no order that a name would have."""
    word = match[0]
    kinds = (any(map(str.isupper, word)), any(map(str.islower, word)), sum(map(str.isdigit, word)) >= 3)
    return MARK if all(kinds) and _entropy(word) >= _ENTROPY else word


def _entropy(word: str) -> float:
    """Shannon's entropy of the word's characters, in bits a character."""
    shares = [count / len(word) for count in Counter(word).values()]
    return -sum(share * math.log2(share) for share in shares)


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
    if _PLURAL.search(joined):
        return 1 if joined.count("_") == 0 else 0
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
        if (strength == 1 and not is_literal) or _is_harmless(bare, match["name"]):
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
