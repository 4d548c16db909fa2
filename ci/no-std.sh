#!/usr/bin/env bash
# Proves that core, protocol and producer do not pull in `std`: ci/no-std is a `no_std` program with a panic handler of its
# own, which cannot be compiled together with `std`. Where a bare-metal target is installed, builds for it as well.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --manifest-path ci/no-std/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/no-std"
for target in thumbv7em-none-eabihf riscv32imac-unknown-none-elf x86_64-unknown-none; do
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
        cargo build --quiet --no-default-features -p ckf-core -p ckf-protocol -p ckf-producer --target "$target"
        echo "built for $target"
        exit 0
    fi
done
echo "skipped: build for a bare-metal target (none is installed; rustup target add x86_64-unknown-none); the program above was built"
