#!/bin/sh
# Runs the collector's tests with other versions of Python and torch, each in an environment of its own.
#
#   sh scripts/versions.sh                      every pair of docs/collecting.md for which an interpreter is here
#   sh scripts/versions.sh 3.11:2.4.1 3.13:2.13.0
#
# Prints one row of the table in docs/collecting.md per pair. Environments take 2 to 6 GB each where only torch's default
# build can be had, and are removed after their tests unless KEEP=1. Settings: ENVIRONMENTS (default .versions), TESTS,
# TRAININGS (an expression for pytest -k; empty: none).
set -eu
cd "$(dirname "$0")/.."
ENVIRONMENTS=${ENVIRONMENTS:-.versions}
# Files that are run whole: what is recorded of loops of known truth, the ends, the processes, what a program sees,
# what becomes of a torch that lacks a name, loops that have settled.
TESTS=${TESTS:-tests/collectors/test_signals.py tests/collectors/launching/test_ends.py tests/collectors/launching/test_processes.py tests/collectors/test_transparency.py tests/collectors/recording/test_stream.py tests/collectors/test_private_names.py tests/collectors/recording/test_fast_path.py}
# What is read off graphs, which torch makes otherwise from version to version.
GRAPHS="tests/collectors/graphs/test_nodes_made_anew.py tests/collectors/graphs/test_whole_slices.py tests/collectors/graphs/test_squashed_twice.py tests/collectors/graphs/test_own_divisor.py tests/collectors/graphs/test_policy_ratios.py tests/collectors/graphs/test_policy_terms.py tests/collectors/graphs/test_written_likelihoods.py tests/collectors/graphs/test_label_columns.py tests/collectors/graphs/test_embedded_ids.py tests/collectors/graphs/test_next_seen.py"
# What is read off bytecode, which Python makes otherwise from version to version.
BYTECODE="tests/collectors/bytecode tests/collectors/lines tests/collectors/data/test_collators.py tests/collectors/data/test_sample_lines.py"
# Labelled trainings, held against their labels: one of each kind of rule that rests on graph nodes, hooks or private names.
TRAININGS=${TRAININGS-wine_faults or hand_written_likelihood or recipe_model_unshifted or sea_shanties or rent_regression or parcel_sorter or tank_levels or valve_control or accumulate_modulo or amp_float16 or gan_toy or echo_student or frozen_backbone or crane_mixture or functional_dropout or train_ignores_its_mode}
[ $# -gt 0 ] || set -- 3.11:2.4.1 3.11:2.6.0 3.11:2.8.0 3.11:2.10.0 3.11:2.13.0 3.11:2.14.1 3.12:2.13.0 3.13:2.13.0 3.14:2.13.0
mkdir -p "$ENVIRONMENTS"

export OMP_NUM_THREADS=1
for pair in "$@"; do
    python=${pair%%:*} torch=${pair##*:}
    row="| $python | $torch |"
    if ! "python$python" -c '' 2>/dev/null; then
        echo "$row not run: no python$python here |"
        continue
    fi
    log="$ENVIRONMENTS/$python-$torch.log"
    if ! (
        VENV="$ENVIRONMENTS/$python-$torch" TORCH="torch==$torch" PYTHON="python$python"
        . scripts/environment.sh
        prepare >"$log" 2>&1 && pip_install pytest hypothesis psutil >>"$log" 2>&1
    ); then
        echo "$row not run: $(tail -n 1 "$log") |"
        continue
    fi
    # Warnings of other versions of torch are not ours to fail on.
    # shellcheck disable=SC2086
    "$ENVIRONMENTS/$python-$torch/bin/python" -m pytest -q -W default $TESTS $GRAPHS $BYTECODE >>"$log" 2>&1 || true
    result=$(tail -n 1 "$log" | sed 's/^=* *//; s/ *=*$//')
    if [ -n "$TRAININGS" ]; then
        # A few of a kind: those that CI runs (fast=True in the manifest). TRACELYZE_ALL_TRAININGS=1 runs all of a name.
        "$ENVIRONMENTS/$python-$torch/bin/python" -m pytest -q -W default tests/trainings/test_trainings.py \
            -k "matches_the_label and ($TRAININGS)" >>"$log" 2>&1 || true
        result="$result; trainings: $(tail -n 1 "$log" | sed 's/^=* *//; s/ *=*$//')"
    fi
    echo "$row $result |"
    sed -n 's/^FAILED /    failed: /p' "$log"
    [ "${KEEP:-}" = 1 ] || rm -rf "$ENVIRONMENTS/$python-$torch"
done
