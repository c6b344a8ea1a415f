#!/bin/sh
# Checks everything: formatting rules, types, the walls between the parts, the generated pages, the tests.
# Run it again as often as you like; .venv is reused. Arguments go to pytest: sh scripts/test.sh tests/test_cli.py -x
set -eu
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare dev

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
failed=
check() {
    name=$1
    shift
    say "$name"
    "$@" || failed="$failed $name"
}

[ $# -gt 0 ] || set -- tests
check ruff "$VENV/bin/ruff" check --quiet .
check mypy "$VENV/bin/mypy"
check import-linter "$VENV/bin/lint-imports" --no-cache --no-logo
check pytest "$VENV/bin/python" -m pytest -n 2 "$@"

if [ -n "$failed" ]; then
    say "failed:$failed"
    exit 1
fi
say "all checks passed"
