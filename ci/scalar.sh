#!/usr/bin/env bash
# The consumer's tests once more with the scalar row scan forced.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="${RUSTFLAGS:-} --cfg ckf_force_scalar" cargo test --quiet -p ckf-consumer --target-dir "${CARGO_TARGET_DIR:-target}/scalar"
