#!/usr/bin/env bash
# Instructions of one walk ("lookup"), one jump, one jump of lanes that end together ("shared"), one batch of eight jumps, one store of 128 blocks and one delta of 16
# blocks, counted by callgrind, against the recorded values in benches/instructions.txt: more than 5 % above fails, more than 5 % below asks to record. `--record` writes them.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v valgrind >/dev/null; then
    echo "skipped: valgrind is not installed"
    exit 0
fi
recorded=benches/instructions.txt
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cargo build --quiet --release -p ckf-benches --bin instructions
bin="${CARGO_TARGET_DIR:-target}/release/instructions"
fail=0
: >"$out/new"
for what in lookup jump shared batch store delta; do
    valgrind --tool=callgrind --callgrind-out-file="$out/$what" --collect-atstart=no --toggle-collect="counted_${what/shared/jump}" \
        "$bin" $what >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
    total=$(sed -n 's/^.*Collected : \([0-9]*\).*/\1/p' "$out/log")
    now=$((total / 100))
    [ "$now" -gt 0 ] || { echo "instructions: nothing was counted for $what" >&2; exit 1; }
    echo "$what $now" >>"$out/new"
    was=$(sed -n "s/^$what //p" "$recorded" 2>/dev/null || true)
    echo "$what: $now instructions, recorded ${was:-none}"
    if [ -n "$was" ] && [ $((now * 100)) -gt $((was * 105)) ]; then
        echo "instructions: $what costs more than 5 % above what is recorded" >&2
        fail=1
    elif [ -n "$was" ] && [ $((now * 100)) -lt $((was * 95)) ]; then
        echo "instructions: $what became cheaper; record it with ci/instructions.sh --record" >&2
        fail=1
    fi
done
if [ "${1:-}" = --record ]; then
    cp "$out/new" "$recorded"
    echo "recorded"
    exit 0
fi
[ -f "$recorded" ] || { echo "instructions: nothing is recorded; run ci/instructions.sh --record" >&2; exit 1; }
exit $fail
