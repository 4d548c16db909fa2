//! Batches of any content, written in every form that msgpack and the engines' releases allow, decode to
//! what was written.

use ckf_testkit::kv_events::{Batch, Event, ExtraKey, Hash, Removed, Stored, TokenIds};
use ckf_testkit::rng::Rng;

/// Writes msgpack, each length and number in any width that holds it.
struct Writer {
    bytes: Vec<u8>,
    rng: Rng,
}

impl Writer {
    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    /// One of so many widths, from the least that will do.
    fn width(&mut self, least: usize, widths: usize) -> usize {
        if self.rng.chance(0.7) { least } else { least + self.below(widths - least) }
    }

    fn big_endian(&mut self, value: u64, len: usize) {
        self.bytes.extend(&value.to_be_bytes()[8 - len..]);
    }

    fn nil(&mut self) {
        self.bytes.push(0xC0);
    }

    fn unsigned(&mut self, value: u64) {
        if value < 1 << 63 && self.rng.chance(0.1) {
            return self.wide_signed(value as i64);
        }
        let least = [1 << 7, 1 << 8, 1 << 16, 1 << 32].iter().filter(|end| value >= **end).count();
        match self.width(least, 5) {
            0 => self.bytes.push(value as u8),
            width => {
                self.bytes.push(0xCB + width as u8);
                self.big_endian(value, 1 << (width - 1));
            }
        }
    }

    fn signed(&mut self, value: i64) {
        match value {
            0.. => self.unsigned(value as u64),
            -32..0 if self.rng.chance(0.5) => self.bytes.push(value as u8),
            _ => self.wide_signed(value),
        }
    }

    fn wide_signed(&mut self, value: i64) {
        let fits = |bits: u32| (value << (64 - bits)) >> (64 - bits) == value;
        let least = [8, 16, 32].iter().filter(|bits| !fits(**bits)).count();
        let width = self.width(least, 4);
        self.bytes.push(0xD0 + width as u8);
        self.big_endian(value as u64, 1 << width);
    }

    /// The head of something that has a length: its short form, for lengths below `end`, and the first
    /// of its long forms.
    fn head(&mut self, len: usize, short: u8, end: usize, long: u8, lengths: &[usize]) {
        let fits = |bytes: usize| len >> (8 * bytes) == 0;
        let least = lengths.iter().filter(|bytes| !fits(**bytes)).count();
        if len < end && self.rng.chance(0.7) {
            return self.bytes.push(short | len as u8);
        }
        let width = self.width(least, lengths.len());
        self.bytes.push(long + width as u8);
        self.big_endian(len as u64, lengths[width]);
    }

    fn array(&mut self, len: usize) {
        self.head(len, 0x90, 16, 0xDC, &[2, 4]);
    }

    fn map(&mut self, len: usize) {
        self.head(len, 0x80, 16, 0xDE, &[2, 4]);
    }

    fn text(&mut self, text: &str) {
        self.head(text.len(), 0xA0, 32, 0xD9, &[1, 2, 4]);
        self.bytes.extend(text.as_bytes());
    }

    fn digest(&mut self, bytes: &[u8]) {
        self.head(bytes.len(), 0, 0, 0xC4, &[1, 2, 4]);
        self.bytes.extend(bytes);
    }

    /// Any value at all.
    fn anything(&mut self, depth: usize) {
        match self.below(if depth > 3 { 7 } else { 9 }) {
            0 => self.nil(),
            1 => self.bytes.push(0xC2),
            2 => {
                let value = self.rng.next_u64();
                self.signed(value as i64 >> (value % 64));
            }
            3 => self.bytes.extend([0xCA, 0x3F, 0x80, 0, 0]),
            4 => self.text("block_hashes"),
            5 => {
                let width = self.below(5);
                self.bytes.extend([0xD4 + width as u8, 7]);
                self.bytes.extend(vec![0xC1; 1 << width]);
            }
            6 => {
                let len = self.below(300);
                self.head(len, 0, 0, 0xC7, &[1, 2, 4]);
                self.bytes.push(0xFF);
                self.bytes.extend(vec![0xC1; len]);
            }
            7 => {
                let len = self.below(4);
                self.array(len);
                (0..len).for_each(|_| self.anything(depth + 1));
            }
            _ => {
                let len = self.below(3);
                self.map(len);
                (0..2 * len).for_each(|_| self.anything(depth + 1));
            }
        }
    }

    fn optional<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        match value {
            Some(value) => write(self, value),
            None => self.nil(),
        }
    }

    fn list<T>(&mut self, list: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.array(list.len());
        list.iter().for_each(|item| write(self, item));
    }

    fn hash(&mut self, hash: &Hash) {
        match hash {
            Hash::Number(bits) if self.rng.chance(0.5) => self.signed(*bits as i64),
            Hash::Number(bits) => self.unsigned(*bits),
            Hash::Digest(bytes) => self.digest(bytes),
        }
    }

    fn key(&mut self, key: &ExtraKey) {
        match key {
            ExtraKey::Text(text) => self.text(text),
            ExtraKey::Media { id, offset } => {
                self.array(2);
                self.text(id);
                self.signed(*offset);
            }
            ExtraKey::Digest(bytes) => self.digest(bytes),
            ExtraKey::Unknown => self.map(0),
        }
    }

    fn field(&mut self, event: &Event, name: &str) {
        let text = |writer: &mut Self, text: &String| writer.text(text);
        let number = |writer: &mut Self, number: &u32| writer.unsigned((*number).into());
        let long = |writer: &mut Self, number: &u64| writer.unsigned(*number);
        match (event, name) {
            (Event::Stored(_), "type") => self.text("BlockStored"),
            (Event::Removed(_), "type") => self.text("BlockRemoved"),
            (Event::Cleared, "type") => self.text("AllBlocksCleared"),
            (Event::Stored(e), "block_hashes") => self.list(&e.block_hashes, Self::hash),
            (Event::Stored(e), "parent_block_hash") => {
                self.optional(e.parent_block_hash.as_ref(), Self::hash);
            }
            (Event::Stored(e), "token_ids") => match &e.token_ids {
                TokenIds::Plain(tokens) => self.list(tokens, number),
                TokenIds::Pairs(pairs) => self.list(pairs, |w, pair| w.list(pair, number)),
            },
            (Event::Stored(e), "block_size") => self.unsigned(e.block_size.into()),
            (Event::Stored(e), "lora_id") => self.optional(e.lora_id.as_ref(), long),
            (Event::Stored(e), "medium") => self.optional(e.medium.as_ref(), text),
            (Event::Stored(e), "lora_name") => self.optional(e.lora_name.as_ref(), text),
            (Event::Stored(e), "extra_keys") => self.optional(e.extra_keys.as_ref(), |w, keys| {
                w.list(keys, |w, keys| {
                    w.optional(keys.as_ref(), |w, keys| w.list(keys, Self::key));
                });
            }),
            (Event::Stored(e), "group_idx") => self.optional(e.group_idx.as_ref(), number),
            (Event::Stored(e), "kv_cache_spec_kind") => {
                self.optional(e.kv_cache_spec_kind.as_ref(), text);
            }
            (Event::Stored(e), "kv_cache_spec_sliding_window") => {
                self.optional(e.kv_cache_spec_sliding_window.as_ref(), long);
            }
            (Event::Stored(e), "locality") => self.optional(e.locality.as_ref(), text),
            (Event::Stored(e), "ownership") => self.optional(e.ownership.as_ref(), text),
            (Event::Stored(e), "session_id") => self.optional(e.session_id.as_ref(), text),
            (Event::Stored(e), "cache_salt") => self.optional(e.cache_salt.as_ref(), text),
            (Event::Stored(e), "lookahead_token_ids") => {
                self.optional(e.lookahead_token_ids.as_ref(), |w, lists| {
                    w.list(lists, |w, tokens| w.list(tokens, number));
                });
            }
            (Event::Removed(e), "block_hashes") => self.list(&e.block_hashes, Self::hash),
            (Event::Removed(e), "medium") => self.optional(e.medium.as_ref(), text),
            (Event::Removed(e), "group_idx") => self.optional(e.group_idx.as_ref(), number),
            (Event::Removed(e), "locality") => self.optional(e.locality.as_ref(), text),
            (Event::Removed(e), "ownership") => self.optional(e.ownership.as_ref(), text),
            _ => panic!("no such field {name}"),
        }
    }

    /// The event as a map, in any order, with keys that nobody knows, or as an array.
    fn event(&mut self, event: &Event) {
        let (positional, further) = match event {
            Event::Stored(_) => (&STORED[..], &STORED_IN_MAPS[..]),
            Event::Removed(_) => (&REMOVED[..], &REMOVED_IN_MAPS[..]),
            Event::Cleared => (&[][..], &[][..]),
        };
        let more = if self.rng.chance(0.3) { self.below(3) } else { 0 };
        if only_in_maps(event) || self.rng.chance(0.5) {
            let names = ["type"].iter().chain(positional).chain(further).copied();
            let mut names: Vec<Option<&str>> = names.map(Some).collect();
            names.resize(names.len() + more, None);
            for at in (1..names.len()).rev() {
                let other = self.below(at + 1);
                names.swap(at, other);
            }
            self.map(names.len());
            for name in names {
                match name {
                    Some(name) => {
                        self.text(name);
                        self.field(event, name);
                    }
                    None => {
                        match self.below(3) {
                            0 => self.text("later"),
                            1 => self.array(0),
                            _ => {
                                self.map(1);
                                self.text("type");
                                self.text("type");
                            }
                        }
                        self.anything(0);
                    }
                }
            }
        } else {
            self.array(1 + positional.len() + more);
            self.field(event, "type");
            // SGLang 0.5.18 and 0.5.19 have the salt in the place of the adapter's name.
            let salt = match event {
                Event::Stored(e) => e.cache_salt.clone(),
                _ => None,
            };
            for name in positional {
                match &salt {
                    Some(salt) if *name == "lora_name" => {
                        self.map(2);
                        self.array(1);
                        self.anything(0);
                        self.anything(0);
                        self.text("cache_salt");
                        self.text(salt);
                    }
                    _ => self.field(event, name),
                }
            }
            (0..more).for_each(|_| self.anything(0));
        }
    }
}

const STORED: [&str; 11] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
];
const STORED_IN_MAPS: [&str; 5] =
    ["locality", "ownership", "session_id", "cache_salt", "lookahead_token_ids"];
const REMOVED: [&str; 3] = ["block_hashes", "medium", "group_idx"];
const REMOVED_IN_MAPS: [&str; 2] = ["locality", "ownership"];

/// Whether an event says what has no position in an array.
fn only_in_maps(event: &Event) -> bool {
    match event {
        Event::Stored(e) => {
            e.locality.is_some()
                || e.ownership.is_some()
                || e.session_id.is_some()
                || e.lookahead_token_ids.is_some()
                || (e.cache_salt.is_some() && e.lora_name.is_some())
        }
        Event::Removed(e) => e.locality.is_some() || e.ownership.is_some(),
        Event::Cleared => false,
    }
}

/// Draws contents.
struct Draw(Rng);

impl Draw {
    fn some<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.chance(0.3).then(|| draw(self))
    }

    fn list<T>(&mut self, most: u64, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.0.below(most + 1)).map(|_| draw(self)).collect()
    }

    /// A number of any size.
    fn number(&mut self) -> u64 {
        let shift = self.0.below(64);
        self.0.next_u64() >> shift
    }

    fn text(&mut self) -> String {
        let most = *self.0.pick(&[4, 40, 300]).unwrap();
        let chars = ['a', 'Z', '0', 'é', '語'];
        self.list(most, |draw| *draw.0.pick(&chars).unwrap()).into_iter().collect()
    }

    fn bytes(&mut self, least: u64) -> Vec<u8> {
        let most = *self.0.pick(&[8, 32, 300]).unwrap();
        let len = self.0.between(least, most);
        (0..len).map(|_| self.0.next_u64() as u8).collect()
    }

    fn hash(&mut self) -> Hash {
        match self.0.below(3) {
            0 => Hash::Number(self.number()),
            1 => Hash::Number(!self.number()),
            _ => Hash::Digest(self.bytes(8)),
        }
    }

    fn key(&mut self) -> ExtraKey {
        match self.0.below(4) {
            0 => ExtraKey::Text(self.text()),
            1 => {
                let offset = self.number() as i64;
                let offset = if self.0.chance(0.5) { offset } else { !offset };
                ExtraKey::Media { id: self.text(), offset }
            }
            2 => ExtraKey::Digest(self.bytes(0)),
            _ => ExtraKey::Unknown,
        }
    }

    fn event(&mut self) -> Event {
        let most = *self.0.pick(&[3, 20]).unwrap();
        match self.0.below(7) {
            0 => Event::Cleared,
            1..3 => Event::Removed(Removed {
                block_hashes: self.list(most, Self::hash),
                medium: self.some(Self::text),
                group_idx: self.some(|draw| draw.number() as u32),
                locality: self.some(Self::text),
                ownership: self.some(Self::text),
            }),
            _ => Event::Stored(Box::new(Stored {
                block_hashes: self.list(most, Self::hash),
                parent_block_hash: self.some(Self::hash),
                token_ids: match self.0.below(3) {
                    0 => {
                        let pair = |draw: &mut Self| [draw.number() as u32, draw.number() as u32];
                        let first = pair(self);
                        TokenIds::Pairs([vec![first], self.list(most, pair)].concat())
                    }
                    _ => TokenIds::Plain(self.list(5 * most, |draw| draw.number() as u32)),
                },
                block_size: self.number() as u32,
                lora_id: self.some(Self::number),
                medium: self.some(Self::text),
                lora_name: self.some(Self::text),
                extra_keys: self
                    .some(|draw| draw.list(most, |draw| draw.some(|draw| draw.list(3, Self::key)))),
                group_idx: self.some(|draw| draw.number() as u32),
                kv_cache_spec_kind: self.some(Self::text),
                kv_cache_spec_sliding_window: self.some(Self::number),
                locality: self.0.chance(0.1).then(|| self.text()),
                ownership: self.0.chance(0.1).then(|| self.text()),
                session_id: self.0.chance(0.1).then(|| self.text()),
                cache_salt: self.some(Self::text),
                lookahead_token_ids: self
                    .0
                    .chance(0.1)
                    .then(|| self.list(3, |draw| draw.list(3, |draw| draw.number() as u32))),
            })),
        }
    }
}

#[test]
fn what_is_written_in_whatever_form_is_read() {
    for seed in 0..3000 {
        let mut draw = Draw(Rng::new(seed));
        let (rank, len) = (draw.some(|draw| draw.number() as u32), draw.0.between(2, 6));
        let mut batch = Batch {
            timestamp: draw.number() as u32 as f64,
            rank: rank.filter(|_| len > 2),
            events: draw.list(5, Draw::event),
            unknown: 0,
        };
        let mut writer = Writer { bytes: Vec::new(), rng: draw.0.fork() };
        writer.array(len as usize);
        match writer.below(4) {
            0 => writer.unsigned(batch.timestamp as u64),
            1 => {
                batch.timestamp = -batch.timestamp;
                writer.signed(batch.timestamp as i64);
            }
            _ => {
                writer.bytes.push(0xCB);
                writer.big_endian(batch.timestamp.to_bits(), 8);
            }
        }
        batch.unknown = writer.below(3);
        writer.array(batch.events.len() + batch.unknown);
        for unknown in 0..batch.unknown {
            writer.array(3 + unknown);
            writer.text("BlockMoved");
            (0..2 + unknown).for_each(|_| writer.anything(0));
        }
        batch.events.iter().for_each(|event| writer.event(event));
        for place in 2..len {
            match (place, batch.rank) {
                (2, Some(rank)) => writer.unsigned(rank.into()),
                (2, None) => writer.nil(),
                _ => writer.anything(0),
            }
        }
        let bytes = writer.bytes;
        assert_eq!(Batch::decode(&bytes).as_ref(), Ok(&batch), "seed {seed}: {bytes:02x?}");
        let cut = (seed as usize * 7919) % bytes.len();
        assert!(Batch::decode(&bytes[..cut]).is_err(), "seed {seed}: cut at {cut}");
    }
}

/// Whatever a release makes of them: they are not worth the batch.
#[test]
fn fields_on_which_nothing_depends_may_have_any_type() {
    for seed in 0..300 {
        let mut writer = Writer { bytes: Vec::new(), rng: Rng::new(seed) };
        writer.array(2);
        writer.unsigned(0);
        writer.array(1);
        writer.map(5);
        writer.text("type");
        writer.text("BlockStored");
        for name in ["session_id", "kv_cache_spec_sliding_window", "lookahead_token_ids"] {
            writer.text(name);
            writer.anything(0);
        }
        writer.text("block_hashes");
        writer.list(&[7], |writer, id| writer.unsigned(*id));
        let batch = Batch::decode(&writer.bytes).expect("a batch");
        let [Event::Stored(stored)] = &batch.events[..] else { panic!("{batch:?}") };
        assert_eq!(stored.block_hashes, [Hash::Number(7)], "seed {seed}");
    }
}
