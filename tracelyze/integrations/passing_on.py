"""What every callback passes on: the framework's settings, and where an evaluation begins and ends."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from tracelyze import redaction
from tracelyze.collectors import current

MAX_SETTINGS = 400
MAX_TEXT = 200
Method = TypeVar("Method", bound=Callable[..., None])


def harmless(method: Method) -> Method:
    """Nothing is done when nothing is recorded; an error becomes an event of the run, not one of the training."""

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> None:
        recorder = current.active()
        if recorder is None:
            return
        try:
            method(*args, **kwargs)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:MAX_TEXT]
            recorder.record_event(
                "log-ignored", method.__name__, redaction.redact_text(f"{method.__name__} failed: {text}")
            )

    return cast("Method", called)


def settings(framework: str, version: str, accumulation: int | None, given: Mapping[str, Any]) -> None:
    """Put the framework and its settings into process.json, secrets redacted."""
    recorder = current.active()
    if recorder is not None:
        facts = {"name": framework, "version": version, "accumulation": accumulation, "settings": plain(given)}
        recorder.add_facts({"framework": facts})


def evaluation_begins(purpose: str, with_latest: bool = False) -> None:
    """From here on calls of the model belong to one pass. `with_latest`: the one that has just returned, too."""
    recorder = current.active()
    if recorder is not None:
        recorder.fire("evaluation_begins", purpose, with_latest)


def evaluation_ends() -> None:
    """The pass is over."""
    recorder = current.active()
    if recorder is not None:
        recorder.fire("evaluation_ends")


def plain(given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings as flat JSON: numbers and short text; what speaks of a secret is hidden, the rest shown as its type."""
    flat: dict[str, Any] = {}
    for key, value in given.items():
        name = f"{prefix}{key}"[:MAX_TEXT]
        if len(flat) >= MAX_SETTINGS:
            break
        if isinstance(value, Mapping) and not prefix.count("."):
            flat |= plain(value, f"{name}.")
        elif value is None or isinstance(value, (bool, int, float)):
            flat[name] = value
        else:
            flat[name] = _text(name, value)
    return flat


def _text(name: str, value: Any) -> str:
    if not isinstance(value, (str, list, tuple)):
        value = f"<{type(value).__name__}>"
    hidden = redaction.redact_argv([f"--{name.replace('.', '-')}={str(value)[:MAX_TEXT]}"])[0]
    return hidden.partition("=")[2]
