#!/bin/sh
# Checks everything: formatting, types, the walls between the parts, the generated pages, the tests.
# Run it again as often as you like; .venv is reused. `--quick` leaves out the tests that start programs or a browser or
# take seconds. Further arguments go to pytest: sh scripts/test.sh tests/test_cli.py -x
set -eu
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare dev

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Each of the hundred programs that the tests start would compile all of tracelyze anew, 0.6 s.
unset PYTHONDONTWRITEBYTECODE
failed=
check() {
    name=$1
    shift
    say "$name"
    "$@" || failed="$failed $name"
}

quick=
if [ "${1:-}" = --quick ]; then
    shift
    quick=1
fi
[ $# -gt 0 ] || set -- tests
# Tests of one file share what they record: a file goes to one worker. Much of their time is waiting (programs that
# sleep, ranks that wait for each other): of two processors, two workers use three fifths, four nearly all.
set -- -n "${WORKERS:-4}" --dist loadfile --no-loadscope-reorder "$@"
[ -z "$quick" ] || set -- -m "not starts_programs and not browser and not slow" --hypothesis-profile quick "$@"

# mypy, 13 s of one processor without its cache, runs beside the tests; what it says follows after theirs.
said=$(mktemp)
"$VENV/bin/mypy" >"$said" 2>&1 &
mypy=$!
trap '[ -z "$mypy" ] || kill "$mypy" 2>/dev/null; rm -f "$said"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
types() {
    status=0
    wait "$mypy" || status=$?
    mypy=
    cat "$said"
    return "$status"
}

check ruff "$VENV/bin/ruff" check --quiet .
check ruff-format "$VENV/bin/ruff" format --check --quiet .
check import-linter "$VENV/bin/lint-imports" --no-cache --no-logo
check pytest "$VENV/bin/python" -m pytest "$@"
check mypy types

if [ -n "$failed" ]; then
    say "failed:$failed"
    exit 1
fi
say "all checks passed"
