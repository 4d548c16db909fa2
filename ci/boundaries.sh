#!/usr/bin/env bash
# The rules of the architecture that a grep can check.
set -euo pipefail
cd "$(dirname "$0")/.."
fail=0
complain() { echo "boundaries: $*" >&2; fail=1; }

for crate in ckf-core ckf-protocol ckf-producer; do
    grep -q '^#!\[no_std\]' $crate/src/lib.rs || complain "$crate is not no_std"
    grep -q '^#!\[forbid(unsafe_code)\]' $crate/src/lib.rs || complain "$crate does not forbid unsafe"
done

# Unsafe code: only the row scans, prefetch and huge pages of the consumer.
while read -r file; do
    case "$file" in ckf-consumer/src/lanes/*) ;; *) complain "unsafe code in $file" ;; esac
done < <(grep -rlE '\bunsafe (\{|fn|impl|extern|trait)' ckf-*/src || true)

# Atomics: named in one file only.
while read -r file; do
    [ "$file" = ckf-consumer/src/sync.rs ] || complain "atomics named in $file"
done < <(grep -rlE '(std|core|loom)::sync::atomic|\bAtomic(U64|U32|Bool|Usize)::new' ckf-*/src || true)

# Dependencies go one way.
depends() {
    local tree
    tree=$(cargo tree --quiet -p "$1" --edges normal --prefix none) || { complain "what $1 depends on is unknown"; return 1; }
    grep -q "^$2 " <<<"$tree"
}
depends ckf-core ckf-protocol && complain "core depends on protocol"
depends ckf-protocol ckf-producer && complain "protocol depends on producer"
depends ckf-protocol ckf-consumer && complain "protocol depends on consumer"
depends ckf-producer ckf-consumer && complain "producer depends on consumer"
depends ckf-consumer ckf-producer && complain "consumer depends on producer"

# Length: a warning above 600 lines, an error above 800.
while read -r lines file; do
    [ "$file" = total ] && continue
    [ "$lines" -gt 600 ] && echo "boundaries: warning: $file has $lines lines"
    [ "$lines" -gt 800 ] && complain "$file has $lines lines"
done < <(git ls-files '*.rs' | xargs wc -l)

# Each of the ten stops is one file that says so in its first line.
for stop in 1 2 3 4 5 6 7 8 9 10; do
    count=$({ grep -lE "^//! Stop $stop[:,]" -r ckf-*/src || true; } | wc -l)
    # Stop 6 has a write side and a read side.
    [ "$count" -eq $((stop == 6 ? 2 : 1)) ] || complain "stop $stop is claimed by $count files"
done
exit $fail
