#!/usr/bin/env bash
# The relay, the router and the engine simulator: lints, unit tests, and all of it as processes on
# loopback, among them the demo. Installs what they talk to.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
if ! command -v nats-server >/dev/null; then
    apt-get update -qq
    apt-get install -y -qq nats-server >/dev/null
fi
# The independent publisher of events, in a place of its own.
python=$target/hosts-python/bin/python
if ! "$python" -c 'import zmq, msgpack' 2>/dev/null; then
    python3 -m venv "$target/hosts-python"
    "$python" -m pip install --quiet pyzmq msgpack
fi
CKF_PYTHON=$(realpath --no-symlinks "$python")
export CKF_PYTHON CKF_REQUIRE_HOSTS=1
# A profile of its own: their many dependencies are built in half the time.
hosts=(--quiet --profile hosts -p ckf-examples --features hosts)
cargo clippy "${hosts[@]}" --all-targets -- -D warnings
cargo test "${hosts[@]}" --lib hosts::
# Few at a time: each test runs several processes.
cargo test "${hosts[@]}" --test hosts -- --test-threads 2
