#!/usr/bin/env bash
# The Rust codec against the Python one in docs/wire, both ways; docs/WIRE.md and the addressing vectors against both.
# CKF_WIRE_SEED chooses the random frames, CKF_WIRE_FRAMES how many.
set -euo pipefail
cd "$(dirname "$0")/.."
packages="$PWD/${CARGO_TARGET_DIR:-target}/wire-python"
case ${CARGO_TARGET_DIR:-target} in /*) packages="$CARGO_TARGET_DIR/wire-python" ;; esac
export PYTHONPATH="$packages" PYTHONDONTWRITEBYTECODE=1
if ! python3 -c 'import xxhash' 2>/dev/null; then
    if ! python3 -m pip --version >/dev/null 2>&1; then
        apt-get update -qq && apt-get install -y -qq python3-pip >/dev/null
    fi
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$packages" xxhash
fi
frames=$(mktemp -d)
trap 'rm -rf "$frames"' EXIT
python3 docs/wire/check.py
python3 docs/wire/check.py --random "${CKF_WIRE_FRAMES:-5000}" "${CKF_WIRE_SEED:-1}" "$frames"
CKF_PYTHON_FRAMES="$frames" cargo test --quiet -p ckf-protocol --test golden --test python
cargo test --quiet -p ckf-core --test vectors
