"""`tracelyze collect`: run a training script unchanged and record it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tracelyze.cli import PATH, app
from tracelyze.errors import InputError


@app.command(
    short_help="Run a training script unchanged and record it.",
    context_settings={"allow_interspersed_args": False},
    epilog="tracelyze collect -- torchrun --nproc-per-node 2 train.py --lr 3e-4",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--out", "-o", type=PATH, metavar="RUN", help="Run directory to make.  [default: runs/<script>-<time>]")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
@click.option("--no-signal", multiple=True, metavar="NAME,...", help="Do not record this signal; may be repeated.")
@click.option(
    "--signal",
    multiple=True,
    metavar="NAME=HOW",
    help="on, off, or every:N to let a sampled signal look at every N-th step whatever it costs; "
    "may be repeated. See tracelyze signals.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0.0),
    default=1.0,
    metavar="PERCENT",
    show_default=True,
    help="Of the step time; sampled signals keep within it.",
)
@click.option(
    "--profile-every",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Profile 4 steps in every N; they are slower.  [default: never]",
)
def collect(
    command: tuple[str, ...],
    out: Path | None,
    quiet: bool,
    no_signal: tuple[str, ...],
    signal: tuple[str, ...],
    budget: float,
    profile_every: int,
) -> None:
    """Run COMMAND, typed as without tracelyze, and record what its training does.

    COMMAND keeps its arguments, terminal, signals and exit status. TRACELYZE_DISABLE=1 in the environment runs it
    unobserved.
    """
    from tracelyze.collectors.launch import collect as launch
    from tracelyze.collectors.options import CollectOptions

    chosen = _chosen(signal)
    launch(
        list(command),
        out,
        CollectOptions(
            quiet,
            signals_off=(*_signals(no_signal), *(name for name, how in chosen.items() if how == "off")),
            profile_every=profile_every,
            budget=budget,
            signals_on=tuple(name for name, how in chosen.items() if how != "off"),
            cadences=tuple((name, how) for name, how in chosen.items() if isinstance(how, int)),
        ),
    )


def _chosen(given: Sequence[str]) -> dict[str, str | int]:
    """ "on", "off" or a number of steps for each signal of --signal NAME=HOW."""
    chosen: dict[str, str | int] = {}
    for wish in given:
        name, _, how = wish.partition("=")
        (name,) = _signals([name], "--signal") or ("",)
        number = how.removeprefix("every:")
        if how in ("on", "off"):
            chosen[name] = how
        elif how.startswith("every:") and number.isdigit() and int(number) > 0:
            _check_sampled(name)
            chosen[name] = int(number)
        else:
            raise InputError(f"--signal {wish}: write {name or 'NAME'}=on, =off, or =every:N with N in steps")
    return chosen


def _check_sampled(name: str) -> None:
    from tracelyze.collectors.signals import SIGNALS

    if not next(signal for signal in SIGNALS if signal.name == name).sampled:
        raise InputError(f"--signal: {name} is recorded at every step, it has no cadence; {name}=off switches it off")


def _signals(given: Sequence[str], option: str = "--no-signal") -> tuple[str, ...]:
    names = [name.strip().replace("-", "_") for names in given for name in names.split(",") if name.strip()]
    if names:
        from tracelyze.collectors.signals import SIGNALS
        from tracelyze.suggestions import unknown

        known = {signal.name for signal in SIGNALS}
        for name in names:
            if name not in known:
                raise unknown(f"{option}: no such signal", name, known)
    return tuple(names)
