#!/usr/bin/env bash
# Licences, bans and sources of all dependencies, where cargo-deny is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cargo-deny >/dev/null; then
    echo "skipped: cargo-deny is not installed (cargo install cargo-deny)"
    exit 0
fi
cargo deny check bans licenses sources
