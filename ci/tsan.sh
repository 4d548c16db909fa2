#!/usr/bin/env bash
# Writers and readers on real threads under the thread sanitizer (ckf-consumer/tests/stress.rs), with the scalar row scan, whose
# loads it can see. The flag is unstable; the stable compiler has it, once told to allow it. Not part of `.ci/run`: takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
if ! ls "$(rustc --print sysroot)/lib/rustlib/$host/lib/"*_rt.tsan.a >/dev/null 2>&1; then
    echo "skipped: this toolchain has no thread sanitizer"
    exit 0
fi
# The sanitizer knows no fences, and the standard library is not instrumented: `Arc` frees after a fence, and the channel of the
# test harness synchronises unseen.
suppressions=$(mktemp)
trap 'rm -f "$suppressions"' EXIT
printf 'race:%s\n' '<alloc::sync::Arc<' '<std::sync::mpmc::' >"$suppressions"
export RUSTC_BOOTSTRAP=1 TSAN_OPTIONS="halt_on_error=1 suppressions=$suppressions"
export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg ckf_force_scalar"
cargo test --quiet --release -p ckf-consumer --test stress --target "$host" --target-dir "${CARGO_TARGET_DIR:-target}/tsan" -- --ignored
