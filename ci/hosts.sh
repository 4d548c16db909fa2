#!/usr/bin/env bash
# The relay, the router and the engine simulator: unit tests, and all of it as processes on loopback, among
# them the demo. Installs what they talk to. With `build` it is only built, which other work beside does not disturb.
set -euo pipefail
cd "$(dirname "$0")/.."
# A profile of its own: their many dependencies are built in half the time.
hosts=(--quiet --profile hosts -p ckf-examples --features hosts)
if [[ ${1:-} == build ]]; then
    cargo test "${hosts[@]}" --lib --test hosts --no-run
    exit 0
fi

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
cargo test "${hosts[@]}" --lib hosts::
# Few at a time: each test runs several processes.
cargo test "${hosts[@]}" --test hosts -- --test-threads 2
