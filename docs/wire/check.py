#!/usr/bin/env python3
"""Checks the Rust crates against ckf_wire.py, both ways, and docs/WIRE.md against the golden files.

    check.py                       compare everything
    check.py --write               write what Python owns: its frames, the addressing vectors, the
                                   listing in docs/WIRE.md, messages.json for new golden files
    check.py --random N SEED DIR   write N frames of random messages, for the Rust test `python`
"""

import json
import random
import sys
from pathlib import Path

import ckf_wire as wire

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDEN = ROOT / "ckf-protocol/tests/golden"
MESSAGES = HERE / "messages.json"
VECTORS = ROOT / "ckf-core/tests/vectors/addressing.txt"
DOCUMENT = ROOT / "docs/WIRE.md"
BEGIN, END = "<!-- golden files: begin -->\n", "<!-- golden files: end -->\n"

failures = 0


def expect(ok, text):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", text)


# ---- frames ----


def golden_files():
    """Names relative to the golden folder, without suffix: those of Rust and those of Python."""
    return sorted(str(p.relative_to(GOLDEN).with_suffix("")) for p in GOLDEN.rglob("*.bin"))


def check_frames():
    described = json.loads(MESSAGES.read_text())
    expect(sorted(described) == golden_files(), "messages.json and the files differ in names")
    damaged = 0
    for name, message in described.items():
        path = (GOLDEN / name).with_suffix(".bin")
        if not path.exists():
            continue
        frame = path.read_bytes()
        expect(wire.decode(frame) == message, f"{name}: decodes to something else")
        expect(wire.encode(message) == frame, f"{name}: encodes to other bytes")
        expect(wire.encode(wire.decode(frame)) == frame, f"{name}: does not re-encode")
        for length in range(len(frame)):
            expect(refused(frame[:length]), f"{name}: cut to {length} bytes it decodes")
        for bit in range(8 * len(frame)):
            flipped = bytearray(frame)
            flipped[bit // 8] ^= 1 << bit % 8
            expect(refused(bytes(flipped)), f"{name}: with bit {bit} flipped it decodes")
            damaged += 1
    print(f"{len(described)} frames decoded and encoded, {damaged} damaged ones refused")


def refused(frame):
    try:
        wire.decode(frame)
    except wire.WireError:
        return True
    return False


def write_frames():
    """Rust's golden files are described by what Python reads; Python's own are written."""
    described = json.loads(MESSAGES.read_text()) if MESSAGES.exists() else {}
    for name in golden_files():
        if not name.startswith("python/"):
            described[name] = wire.decode((GOLDEN / name).with_suffix(".bin").read_bytes())
    numbers = random.Random(1)
    for kind in wire.KINDS:
        for index in range(4):
            described[f"python/{kind}_{index}"] = random_message(numbers, kind)
    (GOLDEN / "python").mkdir(exist_ok=True)
    for name, message in described.items():
        if name.startswith("python/"):
            (GOLDEN / name).with_suffix(".bin").write_bytes(wire.encode(message))
    lines = [f"{json.dumps(name)}: {json.dumps(described[name])}" for name in sorted(described)]
    MESSAGES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def random_message(numbers, kind):
    """A legal message; the ends of all ranges are frequent."""

    def u64(low=0):
        return numbers.choice([low, 100, 1 << 63, wire.U64, numbers.getrandbits(64) | low])

    def hexed(value, size=8):
        return f"{value:0{2 * size}x}"

    def pool():
        source = lambda: numbers.choice(list(wire.SOURCES))
        return {
            "cache_semantics": numbers.randbytes(16).hex(),
            "routing_scope": numbers.randbytes(16).hex(),
            "dc": hexed(u64()),
            "cache_semantics_source": source(),
            "routing_scope_source": source(),
        }

    def format_identity():
        indexing = numbers.choice(list(wire.INDEXINGS))
        count = numbers.choice([2, 3, 1000, 2_777_778, 1 << 30])
        if indexing == "power_of_two":
            count = 1 << numbers.randint(1, 30)
        return {"seed": hexed(u64()), "bucket_count": count, "indexing": indexing}

    def versions():
        low = numbers.randint(1, 255)
        return {"min_version": low, "max_version": numbers.randint(low, 255)}

    def assignment():
        return {"consumer": hexed(u64()), "epoch": u64(), "lane": numbers.randint(0, 63)}

    def word():
        slots = [numbers.choice([0, 1, 0xFFFF, numbers.getrandbits(16)]) for _ in range(4)]
        return hexed(sum(slot << 16 * index for index, slot in enumerate(slots)))

    def patches():
        bucket, all_patches = numbers.choice([0, 1, 70_000]), []
        for _ in range(numbers.randint(1, 40)):
            mask = numbers.randint(1, 15)
            value = lambda: f"{numbers.choice([0, numbers.getrandbits(16)]):04x}"
            slots = [value() if mask >> slot & 1 else None for slot in range(4)]
            all_patches.append({"bucket": bucket, "slots": slots})
            bucket += numbers.randint(1, numbers.choice([2, 300, 70_000, 20_000_000]))
        return all_patches

    message = {"kind": kind}
    if wire.KINDS[kind][1]:
        message["lease"] = hexed(u64(1))
    if kind == "subscribe":
        message |= assignment() | versions() | {"pool": pool(), "format": format_identity()}
    elif kind == "reject":
        message |= assignment() | {"reason": numbers.choice(list(wire.REJECT_REASONS))}
        if message["reason"] == "version_unsupported":
            message |= versions()
        message["pool"] = pool()
        if message["reason"] == "format_mismatch":
            message["format"] = format_identity()
    elif kind == "snapshot_begin":
        message |= assignment() | {"pool": pool(), "format": format_identity()}
        message |= {"incarnation": hexed(u64()), "layout": u64(1), "sequence": u64()}
        message["chunk_buckets"] = numbers.choice([1, 16_384, (1 << 32) - 1])
    elif kind == "snapshot_chunk":
        words = [word() for _ in range(numbers.randint(1, 60))]
        message |= {"first": numbers.choice([0, 16_384, (1 << 30) - 60]), "words": words}
    elif kind in ("snapshot_end", "heartbeat"):
        message |= {"sequence": u64(), "digest": hexed(u64())}
        if kind == "heartbeat":
            message["flags"] = numbers.choice(["none", "drain"])
    elif kind == "delta":
        message |= {"sequence": u64(1), "digest": hexed(u64()), "patches": patches()}
        message |= {"part": numbers.getrandbits(16), "flags": numbers.choice(["none", "last"])}
    elif kind == "retire":
        message["reason"] = numbers.choice(list(wire.RETIRE_REASONS))
    return message


def write_random(count, seed, folder):
    numbers = random.Random(seed)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        message = random_message(numbers, numbers.choice(list(wire.KINDS)))
        frame = wire.encode(message)
        expect(wire.decode(frame) == message, f"random {index} of seed {seed} does not round-trip")
        (folder / f"{index:06}.bin").write_bytes(frame)
    print(f"{count} random frames of seed {seed} written")


# ---- addressing vectors ----


def vectors():
    """The text of addressing.txt."""
    lines = [
        "# Where blocks live. Frozen; docs/WIRE.md gives the rules.",
        "# address INDEXING SEED BUCKETS HASH FINGERPRINT FIRST SECOND",
        "# digest BUCKET IMAGE SHARE    what one bucket adds to a table's digest",
        "# Hexadecimal but for buckets and their numbers.",
    ]

    def add(indexing, seed, count, block_hash):
        fingerprint, first, second = wire.address(indexing, seed, count, block_hash)
        assert wire.alternate(indexing, seed, count, second, fingerprint) == first
        lines.append(
            f"address {indexing} {seed:016x} {count} {block_hash:016x} "
            f"{fingerprint:04x} {first} {second}"
        )

    dynamo_seed = 0x5DEECE66D1B54A33
    hashes = [0, 1, 100, 0x14963C5F3A1B2C4D, 1 << 63, wire.U64]
    lines.append("# The published vectors of Dynamo 1.6.1, then its default seed.")
    for seed, count in [(0, 1024), (0xA0761D6478BD642F, 1 << 20)]:
        for block_hash in [0, 1, 0x14963C5F3A1B2C4D, wire.U64]:
            add("power_of_two", seed, count, block_hash)
    for count in [2, 4, 1024, 1 << 24, 1 << 30]:
        for block_hash in hashes:
            add("power_of_two", dynamo_seed, count, block_hash)
    lines.append("# Any count, from the smallest to the largest.")
    for count in [2, 3, 5, 16, 17, 1000, 1024, 2_777_778, 999_999_937, (1 << 30) - 1, 1 << 30]:
        for seed in [0, 42, wire.U64]:
            for block_hash in hashes:
                add("any_count", seed, count, block_hash)
    lines.append("# Mixed hashes whose low 16 bits are 0: the fingerprint is 1.")
    zeros = [h for h in range(400_000) if wire.mix_block(h, 11) & 0xFFFF == 0][:4]
    for block_hash in zeros:
        add("any_count", 11, 1000, block_hash)
        add("power_of_two", 11, 1024, block_hash)
    lines.append("# Blocks whose two buckets are one: any count only.")
    for count in [2, 3, 1000, 1024]:
        same = lambda h: len(set(wire.address("any_count", 9, count, h)[1:])) == 1
        add("any_count", 9, count, next(filter(same, range(1_000_000))))
    lines.append("# Fingerprints whose step is 0 and becomes 1: power of two only.")
    for count in [2, 16, 1024]:
        stuck = lambda a: wire.raw_step(9, count, a[0]) == 0
        found = (h for h in range(1_000_000) if stuck(wire.address("power_of_two", 9, count, h)))
        add("power_of_two", 9, count, next(found))
    lines.append("# Digests.")
    for bucket in [0, 1, 1000, (1 << 30) - 1]:
        for word in [0, 1, 0xFFFF << 48, 0x0123456789ABCDEF, wire.U64]:
            lines.append(f"digest {bucket} {word:016x} {wire.digest_share(bucket, word):016x}")
    return "\n".join(lines) + "\n"


# ---- the listing in docs/WIRE.md ----


def listing():
    """Every byte of every golden file of Rust."""
    lines = []
    for name in golden_files():
        if name.startswith("python/"):
            continue
        frame = (GOLDEN / name).with_suffix(".bin").read_bytes()
        lines += [f"\n### {name}.bin, {len(frame)} bytes\n", "```text"]
        for offset, data, field, meaning in wire.explain(frame):
            if len(data) == 16 and not meaning:
                meaning = repr(data.decode("ascii"))
            if field == "kind":
                meaning += " " + wire.decode(frame)["kind"]
            for start in range(0, len(data), 8):
                bytes_text = data[start : start + 8].hex(" ")
                shown = f"{field:<23} {meaning}" if start == 0 else ""
                lines.append(f"{offset + start:4}  {bytes_text:<24} {shown}".rstrip())
        lines.append("```")
    return "\n".join(lines).lstrip("\n") + "\n"


def split_document():
    before, rest = DOCUMENT.read_text().split(BEGIN)
    middle, after = rest.split(END)
    return before, middle, after


def main(arguments):
    if arguments[:1] == ["--random"]:
        count, seed, folder = arguments[1:]
        write_random(int(count), int(seed), folder)
    elif arguments == ["--write"]:
        write_frames()
        VECTORS.parent.mkdir(exist_ok=True)
        VECTORS.write_text(vectors())
        before, _, after = split_document()
        DOCUMENT.write_text(before + BEGIN + "\n" + listing() + "\n" + END + after)
    elif not arguments:
        check_frames()
        expect(VECTORS.read_text() == vectors(), "addressing.txt is not what Python computes")
        expect(split_document()[1].strip() == listing().strip(), "the listing in WIRE.md is old")
        print(f"{len(vectors().splitlines())} lines of addressing vectors compared")
    else:
        sys.exit(__doc__)
    if failures:
        sys.exit(f"{failures} failures")


if __name__ == "__main__":
    main(sys.argv[1:])
