#!/usr/bin/env bash
# Explores the interleavings of lane writers and queries under the memory model (ckf-consumer/tests/loom.rs).
# Preemption bound 3, the most that loom's authors advise; it runs for about 15 seconds, after a build of up to two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="${RUSTFLAGS:-} --cfg ckf_loom" LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}" \
    cargo test -p ckf-consumer --test loom --release --target-dir "${CARGO_TARGET_DIR:-target}/loom"
