//! Batches of events, decoded from either form.

use super::event::{Event, ExtraKey, Hash, Removed, Stored, TokenIds};
use super::msgpack::{DecodeError, Problem, Reader, Token};

/// The events that one message carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Seconds since the epoch.
    pub timestamp: f64,
    /// The publisher's data-parallel rank, where it states one.
    pub rank: Option<u32>,
    /// The events, in order. None at all make a heartbeat.
    pub events: Vec<Event>,
    /// Events of unknown kinds that were left out.
    pub unknown: usize,
}

/// Positional fields after the tag, in order.
const STORED_FIELDS: [&str; 11] = [
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
const REMOVED_FIELDS: [&str; 3] = ["block_hashes", "medium", "group_idx"];

impl Batch {
    /// Decodes one message's payload.
    ///
    /// # Errors
    /// [`DecodeError`], with the place.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let len = array(&mut reader, "batch")?;
        if len < 2 {
            return Err(DecodeError { at: 0, problem: Problem::Missing { field: "events" } });
        }
        let timestamp = float(&mut reader, "ts")?;
        let count = array(&mut reader, "events")?;
        let mut batch = Self { timestamp, rank: None, events: Vec::new(), unknown: 0 };
        for _ in 0..count {
            match event(&mut reader)? {
                Some(event) => batch.events.push(event),
                None => batch.unknown += 1,
            }
        }
        if len > 2 {
            batch.rank = optional(&mut reader, |r| number(r, "rank"))?;
            reader.skip_all(len - 3)?;
        }
        if reader.at() < bytes.len() {
            return Err(DecodeError { at: reader.at(), problem: Problem::Trailing });
        }
        Ok(batch)
    }
}

/// One event in either form; `None` for one of an unknown kind.
fn event(reader: &mut Reader<'_>) -> Result<Option<Event>, DecodeError> {
    let at = reader.at();
    match reader.token()? {
        Token::Array(len) if len > 0 => {
            let tag = text(reader, "tag")?;
            positional(reader, tag, len - 1, at)
        }
        Token::Map(len) => {
            // The tag may come last: first look for it, then read.
            let mut ahead = reader.clone();
            let mut tag = None;
            for _ in 0..len {
                match ahead.token()? {
                    Token::Text("type") => tag = Some(text(&mut ahead, "type")?),
                    key => {
                        skip_rest(&mut ahead, key)?;
                        ahead.skip()?;
                    }
                }
            }
            let Some(tag) = tag else {
                return Err(DecodeError { at, problem: Problem::Missing { field: "type" } });
            };
            mapped(reader, tag, len, at)
        }
        _ => Err(DecodeError { at, problem: Problem::Unexpected { field: "event" } }),
    }
}

fn positional(
    reader: &mut Reader<'_>,
    tag: &str,
    len: usize,
    at: usize,
) -> Result<Option<Event>, DecodeError> {
    let mut fields = Fields::new(tag);
    let names: &[&str] = match fields.event {
        Some(Event::Stored(_)) => &STORED_FIELDS,
        Some(Event::Removed(_)) => &REMOVED_FIELDS,
        _ => &[],
    };
    for index in 0..len {
        match names.get(index) {
            Some(name) => fields.read(reader, name)?,
            None => reader.skip()?,
        }
    }
    fields.finish(at)
}

fn mapped(
    reader: &mut Reader<'_>,
    tag: &str,
    len: usize,
    at: usize,
) -> Result<Option<Event>, DecodeError> {
    let mut fields = Fields::new(tag);
    for _ in 0..len {
        match reader.token()? {
            Token::Text(name) => fields.read(reader, name)?,
            key => {
                skip_rest(reader, key)?;
                reader.skip()?;
            }
        }
    }
    fields.finish(at)
}

/// An event of which not all fields are read yet.
struct Fields {
    event: Option<Event>,
    has_hashes: bool,
}

impl Fields {
    fn new(tag: &str) -> Self {
        let event = match tag {
            "BlockStored" => Some(Event::Stored(Box::default())),
            "BlockRemoved" => Some(Event::Removed(Removed::default())),
            "AllBlocksCleared" => Some(Event::Cleared),
            _ => None,
        };
        Self { event, has_hashes: false }
    }

    /// Reads the value of a field, or passes over one that nobody knows.
    fn read(&mut self, reader: &mut Reader<'_>, name: &str) -> Result<(), DecodeError> {
        self.has_hashes |= name == "block_hashes";
        match &mut self.event {
            Some(Event::Stored(stored)) => read_stored(stored, reader, name),
            Some(Event::Removed(removed)) => read_removed(removed, reader, name),
            _ => reader.skip(),
        }
    }

    fn finish(self, at: usize) -> Result<Option<Event>, DecodeError> {
        let named = matches!(self.event, Some(Event::Stored(_) | Event::Removed(_)));
        if named && !self.has_hashes {
            return Err(DecodeError { at, problem: Problem::Missing { field: "block_hashes" } });
        }
        Ok(self.event)
    }
}

fn read_stored(to: &mut Stored, reader: &mut Reader<'_>, name: &str) -> Result<(), DecodeError> {
    match name {
        "block_hashes" => to.block_hashes = hashes(reader)?,
        "parent_block_hash" => {
            to.parent_block_hash = optional(reader, |r| hash(r, "parent_block_hash"))?;
        }
        "token_ids" => to.token_ids = token_ids(reader)?,
        "block_size" => to.block_size = number(reader, "block_size")?,
        "lora_id" => to.lora_id = optional(reader, |r| long(r, "lora_id"))?,
        "medium" => to.medium = optional(reader, |r| owned(r, "medium"))?,
        // SGLang 0.5.18 and 0.5.19 put a map with the salt in this position.
        "lora_name" if matches!(reader.clone().token()?, Token::Map(_)) => {
            let Token::Map(len) = reader.token()? else { return Ok(()) };
            for _ in 0..len {
                match reader.token()? {
                    Token::Text("cache_salt") => {
                        to.cache_salt = optional(reader, |r| owned(r, "cache_salt"))?;
                    }
                    key => {
                        skip_rest(reader, key)?;
                        reader.skip()?;
                    }
                }
            }
        }
        "lora_name" => to.lora_name = optional(reader, |r| owned(r, "lora_name"))?,
        "extra_keys" => {
            to.extra_keys =
                optional(reader, |r| list(r, "extra_keys", |r| optional(r, extra_keys)))?;
        }
        "group_idx" => to.group_idx = optional(reader, |r| number(r, "group_idx"))?,
        "kv_cache_spec_kind" => {
            to.kv_cache_spec_kind = optional(reader, |r| owned(r, "kv_cache_spec_kind"))?;
        }
        "kv_cache_spec_sliding_window" => {
            let field = "kv_cache_spec_sliding_window";
            to.kv_cache_spec_sliding_window = spare(reader, |r| long(r, field))?;
        }
        "locality" => to.locality = optional(reader, |r| owned(r, "locality"))?,
        "ownership" => to.ownership = optional(reader, |r| owned(r, "ownership"))?,
        "session_id" => to.session_id = spare(reader, |r| owned(r, "session_id"))?,
        "cache_salt" => to.cache_salt = optional(reader, |r| owned(r, "cache_salt"))?,
        "lookahead_token_ids" => {
            let field = "lookahead_token_ids";
            let tokens = |r: &mut Reader<'_>| list(r, field, |r| number(r, field));
            to.lookahead_token_ids = spare(reader, |r| list(r, field, tokens))?;
        }
        _ => reader.skip()?,
    }
    Ok(())
}

fn read_removed(to: &mut Removed, reader: &mut Reader<'_>, name: &str) -> Result<(), DecodeError> {
    match name {
        "block_hashes" => to.block_hashes = hashes(reader)?,
        "medium" => to.medium = optional(reader, |r| owned(r, "medium"))?,
        "group_idx" => to.group_idx = optional(reader, |r| number(r, "group_idx"))?,
        "locality" => to.locality = optional(reader, |r| owned(r, "locality"))?,
        "ownership" => to.ownership = optional(reader, |r| owned(r, "ownership"))?,
        _ => reader.skip()?,
    }
    Ok(())
}

fn hashes(reader: &mut Reader<'_>) -> Result<Vec<Hash>, DecodeError> {
    list(reader, "block_hashes", |r| hash(r, "block_hashes"))
}

fn hash(reader: &mut Reader<'_>, field: &'static str) -> Result<Hash, DecodeError> {
    expect(reader, field, |token| match token {
        Token::Unsigned(bits) => Some(Hash::Number(bits)),
        Token::Negative(value) => Some(Hash::Number(value as u64)),
        Token::Bytes(bytes) if bytes.len() >= 8 => Some(Hash::Digest(bytes.to_vec())),
        _ => None,
    })
}

fn token_ids(reader: &mut Reader<'_>) -> Result<TokenIds, DecodeError> {
    let field = "token_ids";
    let mut ahead = reader.clone();
    let is_list = matches!(ahead.token()?, Token::Array(len) if len > 0);
    if is_list && matches!(ahead.token()?, Token::Array(_)) {
        let pair = |reader: &mut Reader<'_>| {
            expect(reader, field, |token| (token == Token::Array(2)).then_some(()))?;
            Ok([number(reader, field)?, number(reader, field)?])
        };
        return list(reader, field, pair).map(TokenIds::Pairs);
    }
    list(reader, field, |r| number(r, field)).map(TokenIds::Plain)
}

fn extra_keys(reader: &mut Reader<'_>) -> Result<Vec<ExtraKey>, DecodeError> {
    list(reader, "extra_keys", |reader| {
        let mut known = reader.clone();
        if let Ok(key) = extra_key(&mut known) {
            *reader = known;
            return Ok(key);
        }
        // A kind that came later: what it means is unknown, where it ends is not.
        reader.skip()?;
        Ok(ExtraKey::Unknown)
    })
}

fn extra_key(reader: &mut Reader<'_>) -> Result<ExtraKey, DecodeError> {
    let field = "extra_keys";
    let at = reader.at();
    match reader.token()? {
        Token::Text(text) => Ok(ExtraKey::Text(text.into())),
        Token::Bytes(bytes) => Ok(ExtraKey::Digest(bytes.to_vec())),
        Token::Array(2) => {
            let id = owned(reader, field)?;
            let offset = expect(reader, field, |token| match token {
                Token::Unsigned(value) => i64::try_from(value).ok(),
                Token::Negative(value) => Some(value),
                _ => None,
            })?;
            Ok(ExtraKey::Media { id, offset })
        }
        _ => Err(DecodeError { at, problem: Problem::Unexpected { field } }),
    }
}

/// Reads one token and makes a value of it.
fn expect<'a, T>(
    reader: &mut Reader<'a>,
    field: &'static str,
    make: impl FnOnce(Token<'a>) -> Option<T>,
) -> Result<T, DecodeError> {
    let at = reader.at();
    let problem = Problem::Unexpected { field };
    make(reader.token()?).ok_or(DecodeError { at, problem })
}

fn array(reader: &mut Reader<'_>, field: &'static str) -> Result<usize, DecodeError> {
    expect(reader, field, |token| if let Token::Array(len) = token { Some(len) } else { None })
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    field: &'static str,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let len = array(reader, field)?;
    (0..len).map(|_| item(reader)).collect()
}

fn optional<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    let mut ahead = reader.clone();
    if ahead.token()? == Token::Nil {
        *reader = ahead;
        return Ok(None);
    }
    read(reader).map(Some)
}

/// Reads a field on which no block's identity or place depends. One of another type than it has today
/// is passed over like one that nobody knows: it is not worth a batch.
fn spare<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    let mut known = reader.clone();
    if let Ok(value) = optional(&mut known, read) {
        *reader = known;
        return Ok(value);
    }
    reader.skip()?;
    Ok(None)
}

fn text<'a>(reader: &mut Reader<'a>, field: &'static str) -> Result<&'a str, DecodeError> {
    expect(reader, field, |token| if let Token::Text(text) = token { Some(text) } else { None })
}

fn owned(reader: &mut Reader<'_>, field: &'static str) -> Result<String, DecodeError> {
    text(reader, field).map(String::from)
}

fn long(reader: &mut Reader<'_>, field: &'static str) -> Result<u64, DecodeError> {
    expect(reader, field, |token| if let Token::Unsigned(n) = token { Some(n) } else { None })
}

fn number(reader: &mut Reader<'_>, field: &'static str) -> Result<u32, DecodeError> {
    expect(reader, field, |token| match token {
        Token::Unsigned(value) => u32::try_from(value).ok(),
        _ => None,
    })
}

fn float(reader: &mut Reader<'_>, field: &'static str) -> Result<f64, DecodeError> {
    expect(reader, field, |token| match token {
        Token::Float(value) => Some(value),
        Token::Unsigned(value) => Some(value as f64),
        Token::Negative(value) => Some(value as f64),
        _ => None,
    })
}

/// Passes over what a token that was read contains.
fn skip_rest(reader: &mut Reader<'_>, token: Token<'_>) -> Result<(), DecodeError> {
    match token {
        Token::Array(len) => reader.skip_all(len),
        Token::Map(len) => reader.skip_all(2 * len),
        _ => Ok(()),
    }
}
