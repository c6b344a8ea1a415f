#!/bin/sh
# Checks everything: formatting rules, types, the walls between the parts, the generated pages, the tests.
# Run it again as often as you like; .venv is reused. Arguments go to pytest: sh scripts/test.sh tests/test_cli.py -x
set -eu
cd "$(dirname "$0")/.."
. scripts/environment.sh
prepare dev

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
say "ruff"
"$VENV/bin/ruff" check .
say "mypy"
"$VENV/bin/mypy"
say "import-linter"
"$VENV/bin/lint-imports" --no-cache
say "pytest"
[ $# -gt 0 ] || set -- tests
"$VENV/bin/python" -m pytest -n 2 "$@"
