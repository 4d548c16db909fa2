#!/usr/bin/env bash
# Explores the shipped producer and sessions exhaustively: the small systems, and those that take a
# minute in release mode. `--deep` adds those that take several and some gigabytes.
set -euo pipefail
cd "$(dirname "$0")/.."
skip=(--skip deep_)
[[ ${1:-} == --deep ]] && skip=()
cargo test --release -p ckf-testkit --test model -- --include-ignored --nocapture --test-threads 1 "${skip[@]}"
