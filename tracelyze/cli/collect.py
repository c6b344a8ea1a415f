"""`tracelyze collect`: run a training script unchanged and record it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tracelyze.cli.app import CONTEXT, app
from tracelyze.errors import Cause, InputError


@app.command(
    context_settings={**CONTEXT, "allow_interspersed_args": False},
    epilog="tracelyze collect -- torchrun --nproc-per-node 2 train.py --lr 3e-4",
)
def collect(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="The command as you type it without tracelyze.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="RUN", help="Run directory to make.  [default: runs/<script>-<time>]"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    no_signal: Annotated[
        list[str] | None,
        typer.Option("--no-signal", metavar="NAME,...", help="Do not record this signal; may be repeated."),
    ] = None,
    signal: Annotated[
        list[str] | None,
        typer.Option(
            "--signal",
            metavar="NAME=HOW",
            help="on, off, or every:N to let a sampled signal look at every N-th step whatever it costs; "
            "may be repeated. See tracelyze signals.",
        ),
    ] = None,
    budget: Annotated[
        float,
        typer.Option("--budget", metavar="PERCENT", min=0.0, help="Of the step time; sampled signals keep within it."),
    ] = 1.0,
    profile_every: Annotated[
        int,
        typer.Option(
            "--profile-every",
            metavar="N",
            min=0,
            show_default=False,
            help="Profile 4 steps in every N; they are slower.  [default: never]",
        ),
    ] = 0,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Call a copy of the model again at two early steps: do samples mix, do bits repeat?"
        ),
    ] = False,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Say what went wrong when COMMAND has ended, as tracelyze diagnose does.")
    ] = False,
) -> None:
    """Run COMMAND and record what its training does.

    COMMAND keeps its arguments, terminal, signals and exit status. TRACELYZE_DISABLE=1 in the environment runs it
    unobserved.
    """
    from tracelyze.collectors.launching import extensions
    from tracelyze.collectors.launching.launch import collect as launch
    from tracelyze.collectors.options import CollectOptions

    wishes = _wishes(signal or [])
    options = CollectOptions(
        quiet,
        signals_off=(*_signals(no_signal or []), *(wish.name for wish in wishes if not wish.on)),
        profile_every=profile_every,
        budget=budget,
        signals_on=(*(wish.name for wish in wishes if wish.on), *(["probe"] if probe else [])),
        cadences=tuple((wish.name, wish.every) for wish in wishes if wish.every is not None),
        extensions=extensions.declared(),
    )
    if diagnose and command:
        from tracelyze.cli.after_collect import run_and_diagnose
        from tracelyze.collectors.launching.launch import default_folder

        folder = out or default_folder(command)
        run_and_diagnose(lambda: launch(command, folder, options), folder)
    launch(command or [], out, options)


@dataclass(frozen=True)
class _Wish:
    """One --signal NAME=HOW. `every`: look at every N-th step, of a sampled signal."""

    name: str
    on: bool
    every: int | None = None


def _wishes(given: list[str]) -> list[_Wish]:
    """What --signal asks for, the last wish of each signal."""
    found: dict[str, _Wish] = {}
    for wish in given:
        given_names, _, how = wish.partition("=")
        number = how.removeprefix("every:")
        for name in _signals([given_names], "--signal") or ("",):
            if name and how in ("on", "off"):
                found[name] = _Wish(name, how == "on")
            elif name and how.startswith("every:") and number.isdigit() and int(number) > 0:
                _check_sampled(name)
                found[name] = _Wish(name, True, int(number))
            else:
                raise InputError(
                    Cause.WRONG_OPTION, f"--signal {wish}: write {name or 'NAME'}=on, =off, or =every:N with N in steps"
                )
    return list(found.values())


def _check_sampled(name: str) -> None:
    from tracelyze.collectors.signals import SIGNALS

    if not any(signal.sampled for signal in SIGNALS if signal.name == name):
        raise InputError(
            Cause.WRONG_OPTION,
            f"--signal: {name} is recorded at every step, it has no cadence; {name}=off switches it off",
        )


def _signals(given: list[str], option: str = "--no-signal") -> tuple[str, ...]:
    names = [name.strip().replace("-", "_") for names in given for name in names.split(",") if name.strip()]
    if names:
        from tracelyze.collectors.launching import extensions
        from tracelyze.collectors.signals import SIGNALS
        from tracelyze.suggestions import unknown

        known = {signal.name for signal in SIGNALS} | {name for name, _ in extensions.declared()}
        for name in names:
            if name not in known:
                raise unknown(f"{option}: no such signal", name, known, "`tracelyze signals` lists them")
    return tuple(names)
