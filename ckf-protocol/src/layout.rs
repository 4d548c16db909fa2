//! Every number of the wire format: kinds, codes, offsets and lengths. `docs/WIRE.md` is its text.

/// A fixed field: its name in errors and in `docs/WIRE.md`, where it starts, how long it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// Declares the fields of one structure, in order, with offsets from its start.
macro_rules! structure {
    ($(#[$doc:meta])* $module:ident: $len:literal { $($at:literal $width:literal $field:ident $name:literal,)* }) => {
        $(#[$doc])*
        pub(crate) mod $module {

            /// Length of the structure, or of its fixed part.
            pub(crate) const LEN: usize = $len;
            $(pub(crate) const $field: super::Field = super::Field {
                name: concat!(stringify!($module), ".", $name),
                at: $at,
                len: $width,
            };)*

            #[cfg(test)]
            pub(crate) const ALL: &[super::Field] = &[$($field),*];
        }
    };
}

structure! {
    /// Starts every frame.
    header: 24 {
        0 2 MAGIC "magic",
        2 1 VERSION "version",
        3 1 KIND "kind",
        4 4 BODY_LENGTH "body_length",
        8 8 LEASE "lease",
        16 4 BODY_CRC "body_crc",
        20 4 HEADER_CRC "header_crc",
    }
}

structure! {
    /// A pool's identity.
    pool: 44 {
        0 16 CACHE_SEMANTICS "cache_semantics",
        16 16 ROUTING_SCOPE "routing_scope",
        32 8 DC "dc",
        40 1 CACHE_SEMANTICS_SOURCE "cache_semantics_source",
        41 1 ROUTING_SCOPE_SOURCE "routing_scope_source",
        42 2 RESERVED "reserved",
    }
}

structure! {
    /// A format's identity.
    format: 20 {
        0 8 SEED "seed",
        8 4 BUCKET_COUNT "bucket_count",
        12 2 VERSION "version",
        14 1 FINGERPRINT_BITS "fingerprint_bits",
        15 1 SLOTS "slots",
        16 1 INDEXING "indexing",
        17 3 RESERVED "reserved",
    }
}

structure! {
    subscribe: 84 {
        0 8 CONSUMER "consumer",
        8 8 EPOCH "epoch",
        16 1 LANE "lane",
        17 1 MIN_VERSION "min_version",
        18 1 MAX_VERSION "max_version",
        19 1 RESERVED "reserved",
        20 44 POOL "pool",
        64 20 FORMAT "format",
    }
}

/// Has no fields.
pub(crate) mod unsubscribe {
    pub(crate) const LEN: usize = 0;
}

structure! {
    /// The format follows only with the reason `reason::FORMAT_MISMATCH`.
    reject: 64 {
        0 8 CONSUMER "consumer",
        8 8 EPOCH "epoch",
        16 1 LANE "lane",
        17 1 REASON "reason",
        18 1 MIN_VERSION "min_version",
        19 1 MAX_VERSION "max_version",
        20 44 POOL "pool",
    }
}

structure! {
    /// What follows a `reject` because of the format.
    reject_format: 20 {
        0 20 FORMAT "format",
    }
}

structure! {
    snapshot_begin: 112 {
        0 8 CONSUMER "consumer",
        8 8 EPOCH "epoch",
        16 1 LANE "lane",
        17 3 RESERVED "reserved",
        20 44 POOL "pool",
        64 20 FORMAT "format",
        84 8 INCARNATION "incarnation",
        92 8 LAYOUT "layout",
        100 8 SEQUENCE "sequence",
        108 4 CHUNK_BUCKETS "chunk_buckets",
    }
}

structure! {
    /// Occupancy masks and slots follow.
    snapshot_chunk: 8 {
        0 4 FIRST "first",
        4 4 COUNT "count",
    }
}

structure! {
    snapshot_end: 16 {
        0 8 SEQUENCE "sequence",
        8 8 DIGEST "digest",
    }
}

structure! {
    /// Heads of the patches follow, then their entries: a gap and values each.
    delta: 24 {
        0 8 SEQUENCE "sequence",
        8 8 DIGEST "digest",
        16 4 COUNT "count",
        20 2 PART "part",
        22 2 FLAGS "flags",
    }
}

structure! {
    heartbeat: 17 {
        0 8 SEQUENCE "sequence",
        8 8 DIGEST "digest",
        16 1 FLAGS "flags",
    }
}

structure! {
    retire: 1 {
        0 1 REASON "reason",
    }
}

/// Names of the parts that have no fixed offset.
pub(crate) mod name {
    pub(crate) const FRAME: &str = "frame";
    pub(crate) const BODY: &str = "body";
    pub(crate) const HEADS: &str = "delta.heads";
    pub(crate) const ENTRIES: &str = "delta.entries";
    pub(crate) const GAP: &str = "delta.gap";
    pub(crate) const MASKS: &str = "snapshot_chunk.masks";
    pub(crate) const SLOTS: &str = "snapshot_chunk.slots";
}

/// First bytes of every frame: "CK".
pub(crate) const MAGIC: u16 = u16::from_le_bytes(*b"CK");

/// The last part of a batch.
pub(crate) const DELTA_LAST: u16 = 1;
/// A heartbeat after which the producer publishes nothing more of what came before.
pub(crate) const HEARTBEAT_DRAIN: u8 = 1;
/// A patch's head: its mask in the low four bits, the length of its gap above them.
pub(crate) const HEAD_GAP_SHIFT: u32 = 4;
/// Most bytes of a gap.
pub(crate) const MAX_GAP: usize = 4;
/// Most bytes of a patch: head, gap, four slots.
pub(crate) const MAX_PATCH: usize = 1 + MAX_GAP + 8;

/// Codes of [`IdentitySource`](crate::IdentitySource).
pub(crate) mod source {
    pub(crate) const DEFAULT_DERIVED: u8 = 1;
    pub(crate) const EXPLICIT: u8 = 2;
}

/// Codes of [`Indexing`](ckf_core::Indexing).
pub(crate) mod indexing {
    pub(crate) const ANY_COUNT: u8 = 1;
    pub(crate) const POWER_OF_TWO: u8 = 2;
}

/// Codes of [`RejectReason`](crate::RejectReason).
pub(crate) mod reason {
    pub(crate) const UNKNOWN_POOL: u8 = 1;
    pub(crate) const FORMAT_MISMATCH: u8 = 2;
    pub(crate) const TOO_MANY_SUBSCRIBERS: u8 = 3;
    pub(crate) const STALE_EPOCH: u8 = 4;
    pub(crate) const FENCED: u8 = 5;
    pub(crate) const VERSION_UNSUPPORTED: u8 = 6;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    const STRUCTURES: [(&[Field], usize); 12] = [
        (header::ALL, header::LEN),
        (pool::ALL, pool::LEN),
        (format::ALL, format::LEN),
        (subscribe::ALL, subscribe::LEN),
        (reject::ALL, reject::LEN),
        (reject_format::ALL, reject_format::LEN),
        (snapshot_begin::ALL, snapshot_begin::LEN),
        (snapshot_chunk::ALL, snapshot_chunk::LEN),
        (snapshot_end::ALL, snapshot_end::LEN),
        (delta::ALL, delta::LEN),
        (heartbeat::ALL, heartbeat::LEN),
        (retire::ALL, retire::LEN),
    ];

    #[test]
    fn fields_follow_each_other_without_a_gap() {
        for (fields, len) in STRUCTURES {
            let end = fields.iter().fold(0, |end, field| {
                assert_eq!(field.at, end, "{field:?}");
                end + field.len
            });
            assert_eq!(end, len, "{fields:?}");
        }
    }
    /// The rows of the tables in `docs/WIRE.md` that describe fields: offset, size, name.
    fn described() -> Vec<(usize, usize, String)> {
        let row = |line: &str| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (at, len, name) = (cells.next()?, cells.next()?, cells.next()?);
            let name = name.strip_prefix('`')?.strip_suffix('`')?;
            Some((at.parse().ok()?, len.parse().ok()?, name.to_string()))
        };
        include_str!("../../docs/WIRE.md").lines().filter_map(row).collect()
    }

    #[test]
    fn the_document_has_the_same_offsets() {
        let fields = STRUCTURES.iter().flat_map(|(fields, _)| *fields);
        let ours: Vec<_> =
            fields.map(|field| (field.at, field.len, field.name.to_string())).collect();
        assert_eq!(described(), ours);
    }

    #[test]
    fn the_document_names_the_parts_without_offsets() {
        for name in [name::HEADS, name::ENTRIES, name::GAP, name::MASKS, name::SLOTS] {
            assert!(include_str!("../../docs/WIRE.md").contains(&format!("`{name}`")), "{name}");
        }
    }
}
