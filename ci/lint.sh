#!/usr/bin/env bash
# Formatting and clippy, warnings denied; the hosts included.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --all --check
cargo clippy --workspace --all-targets --features ckf-examples/hosts --quiet -- -D warnings
