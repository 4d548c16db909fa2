//! A reader of msgpack, one token at a time, without allocation or recursion.

use core::fmt;

/// Why bytes are not what they should be, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the token that is wrong.
    pub at: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {:?}", self.at, self.problem)
    }
}

impl core::error::Error for DecodeError {}

/// What can be wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The bytes end before the token, or before as many elements as it claims could follow.
    Truncated,
    /// A first byte that msgpack does not use.
    Reserved,
    /// A string that is not UTF-8.
    NotUtf8,
    /// Another type than the field has, or a number out of its range.
    Unexpected {
        /// The field.
        field: &'static str,
    },
    /// A field without which the event means nothing.
    Missing {
        /// The field.
        field: &'static str,
    },
    /// Bytes after the value.
    Trailing,
}

/// One token. Containers are followed by their elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// Nothing.
    Nil,
    /// A truth value.
    Bool(bool),
    /// A number of at least 0.
    Unsigned(u64),
    /// A number below 0.
    Negative(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// An array of that many values.
    Array(usize),
    /// A map of that many keys, each followed by its value.
    Map(usize),
    /// An extension: its type and bytes.
    Extension(i8, &'a [u8]),
}

/// Reads tokens from the front of bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the first byte on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next token.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next token.
    ///
    /// A container that claims more elements than bytes are left is refused here, so that a caller
    /// may reserve memory for what it announces.
    ///
    /// # Errors
    /// [`DecodeError`]; the reader then stands where it stood.
    pub fn token(&mut self) -> Result<Token<'a>, DecodeError> {
        let start = self.at;
        let mut ahead = Self { bytes: self.bytes, at: start };
        let token = ahead.parse().map_err(|problem| DecodeError { at: start, problem })?;
        self.at = ahead.at;
        Ok(token)
    }

    /// Passes over one value with all that it contains.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn skip(&mut self) -> Result<(), DecodeError> {
        // Counting what is still to come takes the place of a stack.
        let mut left = 1u64;
        while left > 0 {
            left -= 1;
            left += match self.token()? {
                Token::Array(len) => len as u64,
                Token::Map(len) => 2 * len as u64,
                _ => 0,
            };
        }
        Ok(())
    }

    /// Passes over that many values.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn skip_all(&mut self, values: usize) -> Result<(), DecodeError> {
        (0..values).try_for_each(|_| self.skip())
    }

    fn parse(&mut self) -> Result<Token<'a>, Problem> {
        let first = self.take(1)?[0];
        Ok(match first {
            0x00..=0x7F => Token::Unsigned(first.into()),
            0x80..=0x8F => self.map(usize::from(first & 0x0F))?,
            0x90..=0x9F => self.array(usize::from(first & 0x0F))?,
            0xA0..=0xBF => self.text(usize::from(first & 0x1F))?,
            0xC0 => Token::Nil,
            0xC1 => return Err(Problem::Reserved),
            0xC2 | 0xC3 => Token::Bool(first == 0xC3),
            0xC4..=0xC6 => {
                let len = self.length(1 << (first - 0xC4))?;
                Token::Bytes(self.take(len)?)
            }
            0xC7..=0xC9 => {
                let len = self.length(1 << (first - 0xC7))?;
                self.extension(len)?
            }
            0xCA => Token::Float(f32::from_bits(self.number(4)? as u32).into()),
            0xCB => Token::Float(f64::from_bits(self.number(8)?)),
            0xCC..=0xCF => Token::Unsigned(self.number(1 << (first - 0xCC))?),
            0xD0..=0xD3 => {
                let width = 1 << (first - 0xD0);
                let unused = 64 - 8 * width as u32;
                signed((self.number(width)? << unused) as i64 >> unused)
            }
            0xD4..=0xD8 => self.extension(1 << (first - 0xD4))?,
            0xD9..=0xDB => {
                let len = self.length(1 << (first - 0xD9))?;
                self.text(len)?
            }
            0xDC | 0xDD => {
                let len = self.length(2 << (first - 0xDC))?;
                self.array(len)?
            }
            0xDE | 0xDF => {
                let len = self.length(2 << (first - 0xDE))?;
                self.map(len)?
            }
            0xE0..=0xFF => signed(i64::from(first as i8)),
        })
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Problem> {
        let taken = self.bytes[self.at..].get(..len).ok_or(Problem::Truncated)?;
        self.at += len;
        Ok(taken)
    }

    /// A big-endian number of up to 8 bytes.
    fn number(&mut self, width: usize) -> Result<u64, Problem> {
        Ok(self.take(width)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// A number of up to 4 bytes.
    fn length(&mut self, width: usize) -> Result<usize, Problem> {
        Ok(self.number(width)? as usize)
    }

    fn text(&mut self, len: usize) -> Result<Token<'a>, Problem> {
        core::str::from_utf8(self.take(len)?).map(Token::Text).map_err(|_| Problem::NotUtf8)
    }

    fn extension(&mut self, len: usize) -> Result<Token<'a>, Problem> {
        let kind = self.take(1)?[0] as i8;
        Ok(Token::Extension(kind, self.take(len)?))
    }

    fn array(&self, len: usize) -> Result<Token<'a>, Problem> {
        self.has_room(len)?;
        Ok(Token::Array(len))
    }

    fn map(&self, len: usize) -> Result<Token<'a>, Problem> {
        self.has_room(2 * len)?;
        Ok(Token::Map(len))
    }

    /// Every value takes a byte at least.
    fn has_room(&self, values: usize) -> Result<(), Problem> {
        if values > self.bytes.len() - self.at { Err(Problem::Truncated) } else { Ok(()) }
    }
}

fn signed<'a>(value: i64) -> Token<'a> {
    u64::try_from(value).map_or(Token::Negative(value), Token::Unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Token<'_>, Problem> {
        let mut reader = Reader::new(bytes);
        let token = reader.token().map_err(|error| error.problem)?;
        assert_eq!(reader.at(), bytes.len());
        Ok(token)
    }

    #[test]
    fn every_form_of_a_number_has_its_value() {
        let cases: [(&[u8], Token<'_>); 14] = [
            (&[0x00], Token::Unsigned(0)),
            (&[0x7F], Token::Unsigned(127)),
            (&[0xE0], Token::Negative(-32)),
            (&[0xFF], Token::Negative(-1)),
            (&[0xCC, 200], Token::Unsigned(200)),
            (&[0xCD, 1, 0], Token::Unsigned(256)),
            (&[0xCE, 0, 1, 0, 0], Token::Unsigned(65_536)),
            (&[0xCF, 255, 255, 255, 255, 255, 255, 255, 255], Token::Unsigned(u64::MAX)),
            (&[0xD0, 0x80], Token::Negative(-128)),
            (&[0xD0, 5], Token::Unsigned(5)),
            (&[0xD1, 0xFF, 0x00], Token::Negative(-256)),
            (&[0xD2, 0x80, 0, 0, 0], Token::Negative(i32::MIN.into())),
            (&[0xD3, 0x80, 0, 0, 0, 0, 0, 0, 0], Token::Negative(i64::MIN)),
            (&[0xCA, 0x3F, 0x80, 0, 0], Token::Float(1.0)),
        ];
        for (bytes, token) in cases {
            assert_eq!(read(bytes), Ok(token));
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), Err(Problem::Truncated));
            }
        }
        assert_eq!(read(&[0xC1]), Err(Problem::Reserved));
    }

    #[test]
    fn texts_bytes_and_extensions() {
        assert_eq!(read(&[0xA2, b'h', b'i']), Ok(Token::Text("hi")));
        assert_eq!(read(&[0xD9, 2, b'h', b'i']), Ok(Token::Text("hi")));
        assert_eq!(read(&[0xDA, 0, 1, 0xFF]), Err(Problem::NotUtf8));
        assert_eq!(read(&[0xC4, 2, 1, 2]), Ok(Token::Bytes(&[1, 2])));
        assert_eq!(read(&[0xC5, 0, 1, 9]), Ok(Token::Bytes(&[9])));
        assert_eq!(read(&[0xD4, 0xFE, 9]), Ok(Token::Extension(-2, &[9])));
        assert_eq!(read(&[0xC7, 2, 1, 8, 9]), Ok(Token::Extension(1, &[8, 9])));
        assert_eq!(read(&[0xDB, 0xFF, 0xFF, 0xFF, 0xFF]), Err(Problem::Truncated));
    }

    #[test]
    fn containers_cannot_claim_more_than_there_is() {
        assert_eq!(read(&[0xDD, 0xFF, 0xFF, 0xFF, 0xFF]), Err(Problem::Truncated));
        assert_eq!(read(&[0xDF, 0xFF, 0xFF, 0xFF, 0xFF]), Err(Problem::Truncated));
        assert_eq!(read(&[0x91]), Err(Problem::Truncated));
        assert_eq!(read(&[0x81, 0xC0]), Err(Problem::Truncated));
        assert_eq!(read(&[0x90]), Ok(Token::Array(0)));
    }

    #[test]
    fn nesting_is_skipped_without_a_stack() {
        let mut deep = vec![0x91; 1_000_000];
        deep.push(0xC0);
        let mut reader = Reader::new(&deep);
        assert_eq!(reader.skip(), Ok(()));
        assert_eq!(reader.at(), deep.len());
        deep.pop();
        let cut = Reader::new(&deep).skip().unwrap_err();
        assert_eq!((cut.at, cut.problem), (deep.len() - 1, Problem::Truncated));
    }
}
