#!/usr/bin/env bash
# Documentation, warnings denied, public and private items.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTDOCFLAGS="-D warnings"
cargo doc --workspace --no-deps --quiet
cargo doc -p ckf-core -p ckf-protocol -p ckf-producer -p ckf-consumer --no-deps --document-private-items --quiet
