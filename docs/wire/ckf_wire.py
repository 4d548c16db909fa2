"""The ckf wire format, version 1, in plain Python: written from docs/WIRE.md, not from the Rust code.

decode(frame) gives a message as a dict of JSON-like values, encode(message) the frame's bytes,
explain(frame) every field with its place. address(...) computes where a block lives in a filter;
it alone needs a package, `xxhash`.

Numbers are ints. Leases, digests, seeds, fingerprints and words are hexadecimal texts.
"""

from dataclasses import dataclass

HEADER = 24
MAGIC = int.from_bytes(b"CK", "little")
VERSION = 1
MAX_BUCKETS = 1 << 30
GOLDEN = 0x9E3779B97F4A7C15
U64 = (1 << 64) - 1


class WireError(ValueError):
    """Bytes that are no frame: the field, its offset in the frame, what is wrong."""

    def __init__(self, field, offset, text):
        super().__init__(f"{field} at byte {offset}: {text}")
        self.field, self.offset = field, offset


@dataclass(frozen=True)
class Limits:
    """What a reader accepts; the defaults are those of docs/WIRE.md."""

    max_frame: int = 1 << 20
    max_patches: int = 1 << 16
    max_chunk_buckets: int = 1 << 16
    bucket_count: int = MAX_BUCKETS


# CRC-32C (Castagnoli), reflected polynomial 0x82F63B78.
def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Reading:
    """Fields out of bytes. Remembers each for explain()."""

    reads = True

    def __init__(self, frame, start, end, limits):
        self.frame, self.at, self.end, self.limits = frame, start, end, limits
        self.spans = []

    def fail(self, field, text, at=None):
        raise WireError(field, self.at if at is None else at, text)

    def take(self, field, size):
        if size > self.end - self.at:
            self.fail(field, f"{size} bytes needed, {self.end - self.at} left")
        data = self.frame[self.at : self.at + size]
        self.spans.append([self.at, data, field, ""])
        self.at += size
        return data

    def tell(self, meaning):
        self.spans[-1][3] = str(meaning)

    def uint(self, values, name, size):
        values[name] = int.from_bytes(self.take(name, size), "little")
        self.tell(values[name])

    def hex(self, values, name, size):
        self.uint(values, name, size)
        values[name] = f"{values[name]:0{2 * size}x}"
        self.tell(values[name])

    def digest(self, values, name):
        values[name] = self.take(name, 16).hex()

    def code(self, values, name, size, codes):
        number = {}
        at = self.at
        self.uint(number, name, size)
        names = [text for text, code in codes.items() if code == number[name]]
        if not names:
            self.fail(name, f"value {number[name]} is not allowed", at)
        values[name] = names[0]
        self.tell(names[0])

    def constant(self, name, size, value):
        found = {}
        at = self.at
        self.uint(found, name, size)
        if size > 1:
            self.tell(f"0x{found[name]:0{2 * size}x}")
        if found[name] != value:
            self.fail(name, f"value {found[name]} is not allowed", at)

    def done(self):
        if self.at != self.end:
            self.fail("body", f"{self.end - self.at} bytes too many")


class Writing:
    """Fields into bytes: the same calls as Reading."""

    reads = False

    def __init__(self, limits):
        self.out, self.limits = bytearray(), limits

    def fail(self, field, text, at=None):
        raise WireError(field, len(self.out), text)

    def put(self, value, size):
        self.out += value.to_bytes(size, "little")

    def uint(self, values, name, size):
        self.put(values[name], size)

    def hex(self, values, name, size):
        self.put(int(values[name], 16), size)

    def digest(self, values, name):
        self.out += bytes.fromhex(values[name])

    def code(self, values, name, size, codes):
        self.put(codes[values[name]], size)

    def constant(self, name, size, value):
        self.put(value, size)

    def done(self):
        pass


SOURCES = {"default_derived": 1, "explicit": 2}
INDEXINGS = {"any_count": 1, "power_of_two": 2}
REJECT_REASONS = {
    "unknown_pool": 1,
    "format_mismatch": 2,
    "too_many_subscribers": 3,
    "stale_epoch": 4,
    "fenced": 5,
    "version_unsupported": 6,
}
RETIRE_REASONS = {
    "lagged": 1,
    "replaced": 2,
    "layout_changed": 3,
    "fenced": 4,
    "shutdown": 5,
    "deadline": 6,
    "unsubscribed": 7,
}


def pool(io, values):
    values = values.setdefault("pool", {})
    io.digest(values, "cache_semantics")
    io.digest(values, "routing_scope")
    io.hex(values, "dc", 8)
    io.code(values, "cache_semantics_source", 1, SOURCES)
    io.code(values, "routing_scope_source", 1, SOURCES)
    io.constant("reserved", 2, 0)


def format_identity(io, values):
    values = values.setdefault("format", {})
    io.hex(values, "seed", 8)
    io.uint(values, "bucket_count", 4)
    io.constant("version", 2, 1)
    io.constant("fingerprint_bits", 1, 16)
    io.constant("slots", 1, 4)
    io.code(values, "indexing", 1, INDEXINGS)
    io.constant("reserved", 3, 0)
    count = values["bucket_count"]
    if not 2 <= count <= MAX_BUCKETS:
        io.fail("bucket_count", f"{count} is outside 2 to 2^30")
    if values["indexing"] == "power_of_two" and count & (count - 1):
        io.fail("bucket_count", f"{count} is not a power of two")


def lane(io, message):
    io.uint(message, "lane", 1)
    if message["lane"] > 63:
        io.fail("lane", f"{message['lane']} is above 63")


def versions(io, message):
    io.uint(message, "min_version", 1)
    io.uint(message, "max_version", 1)
    if not 1 <= message["min_version"] <= message["max_version"]:
        io.fail("min_version", "no range of versions")


def assignment(io, message):
    io.hex(message, "consumer", 8)
    io.uint(message, "epoch", 8)
    lane(io, message)


def subscribe(io, message):
    assignment(io, message)
    versions(io, message)
    io.constant("reserved", 1, 0)
    pool(io, message)
    format_identity(io, message)


def unsubscribe(io, message):
    pass


def reject(io, message):
    assignment(io, message)
    io.code(message, "reason", 1, REJECT_REASONS)
    if message["reason"] == "version_unsupported":
        versions(io, message)
    else:
        io.constant("min_version", 1, 0)
        io.constant("max_version", 1, 0)
    pool(io, message)
    if message["reason"] == "format_mismatch":
        format_identity(io, message)


def snapshot_begin(io, message):
    assignment(io, message)
    io.constant("reserved", 3, 0)
    pool(io, message)
    format_identity(io, message)
    io.hex(message, "incarnation", 8)
    io.uint(message, "layout", 8)
    io.uint(message, "sequence", 8)
    io.uint(message, "chunk_buckets", 4)
    for name in ("layout", "chunk_buckets"):
        if message[name] == 0:
            io.fail(name, "0 is not allowed")


def snapshot_chunk(io, message):
    io.uint(message, "first", 4)
    words = message.setdefault("words", [])
    number = {"count": len(words)}
    io.uint(number, "count", 4)
    count = number["count"]
    if not 1 <= count <= io.limits.max_chunk_buckets:
        io.fail("count", f"{count} is outside 1 to {io.limits.max_chunk_buckets}")
    if message["first"] + count > io.limits.bucket_count:
        io.fail("first", "buckets outside the table")
    if io.reads:
        masks = io.take("masks", (count + 1) // 2)
        masks = [masks[index // 2] >> index % 2 * 4 & 15 for index in range(count + count % 2)]
        io.tell(" ".join(f"{mask:04b}" for mask in masks[:count]))
        if count % 2 and masks[count]:
            io.fail("masks", "bits after the last bucket")
        for index, mask in enumerate(masks[:count]):
            word = 0
            for slot in slots_of(mask):
                value = int.from_bytes(io.take("slot", 2), "little")
                io.tell(f"bucket {message['first'] + index} slot {slot}: {value:04x}")
                if value == 0:
                    io.fail("slot", "an occupied slot holds 0", io.at - 2)
                word |= value << 16 * slot
            words.append(f"{word:016x}")
    else:
        numbers = [int(word, 16) for word in words]
        masks = [occupancy(word) for word in numbers] + [0]
        for index in range(0, count, 2):
            io.put(masks[index] | masks[index + 1] << 4, 1)
        for word, mask in zip(numbers, masks):
            for slot in slots_of(mask):
                io.put(word >> 16 * slot & 0xFFFF, 2)


def snapshot_end(io, message):
    io.uint(message, "sequence", 8)
    io.hex(message, "digest", 8)


def delta(io, message):
    io.uint(message, "sequence", 8)
    if message["sequence"] == 0:
        io.fail("sequence", "0 is not allowed")
    io.hex(message, "digest", 8)
    patches = message.setdefault("patches", [])
    number = {"count": len(patches)}
    io.uint(number, "count", 4)
    count = number["count"]
    if not 1 <= count <= io.limits.max_patches:
        io.fail("count", f"{count} is outside 1 to {io.limits.max_patches}")
    io.uint(message, "part", 2)
    io.code(message, "flags", 2, {"none": 0, "last": 1})
    (read_patches if io.reads else write_patches)(io, patches, count)


def read_patches(io, patches, count):
    heads = []
    for _ in range(count):
        head = io.take("head", 1)[0]
        mask, gap_len = head & 15, head >> 4
        io.tell(f"slots {mask:04b}, gap of {gap_len} bytes")
        if mask == 0 or gap_len > 4:
            io.fail("head", f"value {head} is not allowed", io.at - 1)
        heads.append((mask, gap_len))
    bucket = 0
    for index, (mask, gap_len) in enumerate(heads):
        at = io.at
        gap_bytes = io.take("gap", gap_len)
        gap = int.from_bytes(gap_bytes, "little")
        bucket += gap
        io.tell(f"{gap}: bucket {bucket}")
        if gap_bytes.endswith(b"\0"):
            io.fail("gap", "not in its shortest form", at)
        if gap == 0 and index > 0:
            io.fail("gap", f"bucket {bucket} comes twice", at)
        if bucket >= io.limits.bucket_count:
            io.fail("gap", f"bucket {bucket} is outside the table", at)
        slots = [None] * 4
        for slot in slots_of(mask):
            slots[slot] = f"{int.from_bytes(io.take('value', 2), 'little'):04x}"
            io.tell(f"slot {slot}: {slots[slot]}")
        patches.append({"bucket": bucket, "slots": slots})


def write_patches(io, patches, count):
    last, entries = 0, bytearray()
    for index, patch in enumerate(patches):
        gap = patch["bucket"] - last
        if gap < 0 or (gap == 0 and index > 0) or patch["bucket"] >= io.limits.bucket_count:
            io.fail("gap", "buckets must ascend within the table")
        last = patch["bucket"]
        gap_len = (gap.bit_length() + 7) // 8
        mask = sum(1 << slot for slot in range(4) if patch["slots"][slot] is not None)
        if mask == 0:
            io.fail("head", "a patch names at least one slot")
        io.put(mask | gap_len << 4, 1)
        entries += gap.to_bytes(gap_len, "little")
        for slot in slots_of(mask):
            entries += int(patch["slots"][slot], 16).to_bytes(2, "little")
    io.out += entries


def heartbeat(io, message):
    io.uint(message, "sequence", 8)
    io.hex(message, "digest", 8)
    io.code(message, "flags", 1, {"none": 0, "drain": 1})


def retire(io, message):
    io.code(message, "reason", 1, RETIRE_REASONS)


# kind: (code, has a lease, body)
KINDS = {
    "subscribe": (1, False, subscribe),
    "unsubscribe": (2, True, unsubscribe),
    "reject": (16, False, reject),
    "snapshot_begin": (17, True, snapshot_begin),
    "snapshot_chunk": (18, True, snapshot_chunk),
    "snapshot_end": (19, True, snapshot_end),
    "delta": (20, True, delta),
    "heartbeat": (21, True, heartbeat),
    "retire": (22, True, retire),
}


def slots_of(mask):
    return [slot for slot in range(4) if mask >> slot & 1]


def occupancy(word):
    return sum(1 << slot for slot in range(4) if word >> 16 * slot & 0xFFFF)


def read(frame, limits):
    """The message, and the fields that it was read from."""
    io = Reading(frame, 0, len(frame), limits)
    fields = {}
    io.constant("magic", 2, MAGIC)
    io.uint(fields, "version", 1)
    io.uint(fields, "kind", 1)
    io.uint(fields, "body_length", 4)
    io.hex(fields, "lease", 8)
    io.hex(fields, "body_crc", 4)
    io.constant("header_crc", 4, crc32c(frame[:20]))
    length = fields["body_length"]
    if length > limits.max_frame - HEADER:
        io.fail("body_length", f"above the limit of {limits.max_frame - HEADER}", 4)
    if length != len(frame) - HEADER:
        io.fail("body", f"{len(frame) - HEADER} bytes instead of {length}")
    if f"{crc32c(frame[HEADER:]):08x}" != fields["body_crc"]:
        io.fail("body_crc", "wrong checksum", 16)
    if fields["version"] != VERSION:
        io.fail("version", f"version {fields['version']} is not spoken here", 2)
    names = [name for name, (code, _, _) in KINDS.items() if code == fields["kind"]]
    if not names:
        io.fail("kind", f"unknown kind {fields['kind']}", 3)
    _, has_lease, body = KINDS[names[0]]
    if has_lease != (int(fields["lease"], 16) != 0):
        io.fail("lease", "present or absent against the kind", 8)
    message = {"kind": names[0]}
    if has_lease:
        message["lease"] = fields["lease"]
    body(io, message)
    io.done()
    return message, io.spans


def decode(frame, limits=Limits()):
    return read(frame, limits)[0]


def explain(frame, limits=Limits()):
    """Each field of a frame as (offset, bytes, name, meaning)."""
    return [tuple(span) for span in read(frame, limits)[1] if span[1]]


def encode(message, limits=Limits()):
    code, has_lease, body = KINDS[message["kind"]]
    io = Writing(limits)
    body(io, message)
    lease = int(message["lease"], 16) if has_lease else 0
    header = b"CK" + bytes([VERSION, code]) + len(io.out).to_bytes(4, "little")
    header += lease.to_bytes(8, "little") + crc32c(io.out).to_bytes(4, "little")
    return header + crc32c(header).to_bytes(4, "little") + bytes(io.out)


def mix_block(block_hash, seed):
    """XXH3-64 of the hash's eight little-endian bytes."""
    import xxhash

    return xxhash.xxh3_64_intdigest(block_hash.to_bytes(8, "little"), seed)


def raw_step(seed, bucket_count, fingerprint):
    """Power of two only: how far apart the two buckets are, before 0 becomes 1."""
    import xxhash

    mixed = xxhash.xxh3_64_intdigest(fingerprint.to_bytes(2, "little"), seed ^ GOLDEN)
    return mixed & bucket_count - 1


def alternate(indexing, seed, bucket_count, bucket, fingerprint):
    """The other bucket of a fingerprint found in `bucket`."""
    if indexing == "any_count":
        total = (fingerprint * GOLDEN & U64) * bucket_count >> 64
        return (total - bucket) % bucket_count
    return bucket ^ (raw_step(seed, bucket_count, fingerprint) or 1)


def address(indexing, seed, bucket_count, block_hash):
    """Fingerprint, first and second bucket of a block."""
    mixed = mix_block(block_hash, seed)
    fingerprint = mixed & 0xFFFF or 1
    if indexing == "any_count":
        first = mixed * bucket_count >> 64
    else:
        first = mixed >> 16 & bucket_count - 1
    return fingerprint, first, alternate(indexing, seed, bucket_count, first, fingerprint)


def digest_share(bucket, word):
    """What one bucket adds to a table's digest."""
    if word == 0:
        return 0
    x = word + (bucket + 1) * GOLDEN & U64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & U64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & U64
    return x ^ x >> 31
