#!/usr/bin/env bash
# Every combination of features of the library crates compiles without warnings.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="${RUSTFLAGS:-} -D warnings"
check() { echo "check $*"; cargo check --quiet --target-dir "${CARGO_TARGET_DIR:-target}/features" "$@"; }
for crate in ckf-core ckf-protocol ckf-producer ckf-consumer; do
    check -p $crate --no-default-features
    check -p $crate --all-features
done
RUSTFLAGS="$RUSTFLAGS --cfg ckf_force_scalar" check -p ckf-consumer
