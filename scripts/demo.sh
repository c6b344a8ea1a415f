#!/bin/sh
# Records a training with a bug in it, and says what the bug is. Run it again as often as you like; .venv is reused.
set -eu
cd "$(dirname "$0")/.."
. scripts/environment.sh
SCRIPT=${SCRIPT:-sample_traces/scripts/missing_zero_grad.py}
prepare

RUN=runs/demo-$(date +%Y%m%d-%H%M%S)
say "recording: tracelyze collect --out $RUN -- python $SCRIPT"
"$VENV/bin/tracelyze" collect --out "$RUN" -- "$VENV/bin/python" "$SCRIPT"
say "diagnosing: tracelyze diagnose $RUN"
"$VENV/bin/tracelyze" diagnose "$RUN"
say "open the report: $PWD/$RUN/diagnosis.html"
