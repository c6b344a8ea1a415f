# Sourced by demo.sh and test.sh from the root of the checkout: makes or reuses .venv with tracelyze and torch in it.
#
#   prepare         .venv with torch and tracelyze
#   prepare dev     the same, and what the tests and checks need
#
# What is installed is left alone until pyproject.toml changes. Settings: PYTHON (default python3), TORCH (requirement, default torch==2.13.0), VENV (default .venv).

VENV=${VENV:-.venv}
TORCH=${TORCH:-torch==2.13.0}
TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu

say() {
    printf '==> %s\n' "$*"
}

prepare() {
    say "environment: $VENV"
    stamp="$VENV/.installed${1:+-$1}"
    if [ -e "$stamp" ] && [ ! pyproject.toml -nt "$stamp" ]; then
        return
    fi
    if [ ! -x "$VENV/bin/python" ]; then
        "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
            echo "tracelyze needs Python 3.11 or newer: set PYTHON=/path/to/python3.11" >&2
            exit 2
        }
        "${PYTHON:-python3}" -m venv "$VENV"
    fi
    # --group (PEP 735) came with pip 25.1.
    "$VENV/bin/python" -m pip --version | awk '{ split($2, v, "."); exit !(v[1] > 25 || (v[1] == 25 && v[2] >= 1)) }' ||
        pip_install --upgrade "pip>=25.1"
    "$VENV/bin/python" -c 'import torch' 2>/dev/null || install_torch
    say "installing tracelyze"
    if [ "${1:-}" = dev ]; then
        pip_install -e . --group dev
    else
        pip_install -e .
    fi
    touch "$stamp"
}

# The CPU build saves gigabytes of CUDA libraries. One quick attempt at its index: where that host cannot be reached,
# the default index serves. A wheel at hand (find-links of pip's configuration) needs no attempt.
install_torch() {
    say "installing $TORCH (a few minutes on a slow line)"
    if [ "$(uname -s)" = Linux ] && ! cpu_wheel_at_hand; then
        pip_install --retries 0 --timeout 15 --index-url "$TORCH_CPU_INDEX" "$TORCH" && return
        say "no CPU build from $TORCH_CPU_INDEX: taking the default one"
    fi
    pip_install "$TORCH"
}

cpu_wheel_at_hand() {
    for place in ${PIP_FIND_LINKS:-} $("$VENV/bin/python" -m pip config get global.find-links 2>/dev/null || true); do
        for wheel in "${place#file://}"/torch-*cpu*.whl; do
            [ -e "$wheel" ] && return 0
        done
    done
    return 1
}

pip_install() {
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}
