#!/usr/bin/env bash
# The consumer's tests for 64-bit ARM, whose row scan uses NEON: under an emulator, or at least compiled. Needs the standard
# library of that target (`rustup target add aarch64-unknown-linux-gnu`), `gcc-aarch64-linux-gnu` and `qemu-user`.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
[ "$(uname -m)" = aarch64 ] && { echo "skipped: the ordinary tests run on this processor"; exit 0; }
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "skipped: the standard library for $target is not installed"
    exit 0
fi
flags=(--quiet -p ckf-consumer --target "$target" --target-dir "${CARGO_TARGET_DIR:-target}/neon")
cargo check "${flags[@]}"
# One at a time: `command -v` with two names is content with one of them.
if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    echo "compiled; skipped: running the tests needs aarch64-linux-gnu-gcc and qemu-aarch64"
    exit 0
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
cargo test "${flags[@]}" --lib --test model
