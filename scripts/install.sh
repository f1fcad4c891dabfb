#!/bin/sh
# Creates .venv and installs Scriptorium into it; `make setup` calls this.
#
#   scripts/install.sh core            the program
#   scripts/install.sh test|lint|bench one dependency group on top
#
# GPU=1 takes torch as PyPI ships it (CUDA on Linux); otherwise the CPU build, because the CUDA
# libraries are several gigabytes that a machine without a GPU cannot use.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

find_python() {
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
    die "Python 3.11 or newer is needed and none was found (name one with PYTHON=/path/to/python3)."
}

make_venv() {
    if [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python has no venv module. On Debian and Ubuntu: sudo apt install python3-venv"
    say "Creating .venv with $("$python" --version) ..."
    "$python" -m venv .venv
    # Dependency groups need pip 25.1; Debian 12 brings 23.0.
    pip install --upgrade 'pip>=25.1'
}

pip() {
    .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"
}

torch_version() {
    sed -n 's/^torch==//p' constraints.txt
}

install_torch() {
    .venv/bin/python -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' &&
        return
    version=$(torch_version)
    if [ "${GPU:-0}" = 1 ] || [ "$(uname -s)" != Linux ]; then
        say "Installing torch $version ..."
        pip install -c constraints.txt "torch==$version"
        return
    fi
    say "Installing torch $version for the CPU (make setup GPU=1 for CUDA) ..."
    # First where pip is configured to look (a mirror may carry it), then PyTorch's own index.
    # Without dependencies: the next step takes those from the usual index, pinned.
    pip install --no-deps "torch==$version+cpu" 2>/dev/null ||
        pip install --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$version+cpu" ||
        die "torch $version+cpu cannot be found. Is https://download.pytorch.org reachable?"
}

case "${1:-core}" in
core)
    make_venv
    install_torch
    say "Installing Scriptorium and what it needs, pinned by constraints.txt ..."
    pip install -c constraints.txt -e .
    ;;
test | lint | bench)
    say "Installing the dependency group '$1' ..."
    pip install -c constraints.txt --group "$1"
    ;;
*) die "unknown part: $1" ;;
esac
