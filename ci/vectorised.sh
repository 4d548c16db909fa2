#!/usr/bin/env bash
# The row scan really is vectorised: in the optimised searches of each backend (`enter` of ckf-consumer/src/lanes/), lines are
# loaded and compared a whole register at a time. What is expected is written here; a lost vector fails.
set -euo pipefail
cd "$(dirname "$0")/.."
case $(uname -m) in
    x86_64) ;;
    *) echo "skipped: only x86-64 has an expectation of its machine code"; exit 0 ;;
esac
cargo build --quiet --release -p ckf-benches --bin instructions
bin="${CARGO_TARGET_DIR:-target}/release/instructions"
code=$(mktemp)
trap 'rm -f "$code"' EXIT
objdump -d --no-show-raw-insn "$bin" >"$code"

# count BACKEND REGISTER INSTRUCTION: how often it occurs in the searches of that backend.
count() {
    awk -v backend="$1" -v register="$2" -v instruction="$3" '
        /^[0-9a-f]+ </ { inside = $2 ~ /ckf_consumer/ && $2 ~ backend && $2 ~ /enter/ }
        inside && $2 == instruction && $0 ~ register { n++ }
        END { print n + 0 }' "$code"
}
fail=0
expect() {
    local found
    found=$(count "$1" "$2" "$3")
    echo "$1: $found x $3 on $2, at least $4 expected"
    [ "$found" -ge "$4" ] || { echo "vectorised: the $1 row scan has lost $3" >&2; fail=1; }
}
expect avx512 zmm vmovdqa64 48
expect avx512 zmm vpminuw 24
expect avx512 zmm vptestmq 24
expect avx2 ymm vpminuw 48
expect avx2 ymm vpcmpeqw 48
exit $fail
