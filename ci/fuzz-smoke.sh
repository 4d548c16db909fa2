#!/usr/bin/env bash
# Runs every fuzz target with the address sanitizer: those that read what the network brings for FUZZ_SECONDS (60) each, the
# others for half as long; `--hour` for an hour each. New inputs are kept out of the repository, in fuzz/target.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
[[ ${1:-} == --hour ]] && seconds=3600

# The sanitizer is an unstable flag; the stable compiler has it, once told to allow it.
export RUSTC_BOOTSTRAP=1
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz-smoke: installing cargo-fuzz"
    env -u RUSTC_BOOTSTRAP cargo install --quiet --locked cargo-fuzz
fi
if ! c++ --version >/dev/null 2>&1; then
    echo "fuzz-smoke: skipped: libFuzzer needs a C++ compiler, and there is none"
    exit 0
fi

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/fuzz/target}
target=$(rustc -vV | sed -n 's/^host: //p')
for name in decode end_to_end session_ops filter_ops kv_events producer_ops source_ops; do
    case $name:${1:-} in
        *:--hour | decode:* | end_to_end:* | session_ops:*) share=$seconds ;;
        *) share=$((seconds / 2)) ;;
    esac
    echo "fuzz-smoke: $name, $share s"
    found=$CARGO_TARGET_DIR/fuzz-found/$name
    mkdir -p "$found"
    cargo fuzz run --target "$target" --fuzz-dir fuzz "$name" "$found" "fuzz/corpus/$name" -- \
        -max_total_time="$share" -timeout=20 -rss_limit_mb=2048 -max_len=4096 -len_control=0 -print_final_stats=1 \
        2>&1 | grep -vE '^#[0-9]+\s|# Uses: |^###### |^NEW_FUNC|^\s+NEW_' | tail -n 25
done
echo "fuzz-smoke: all targets passed"
