//! Recordings of publishers, `KVEVCAP1`: live messages and replay exchanges in order of arrival.

use core::fmt;

/// Why bytes are not a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    /// They do not begin with the mark of the format.
    Magic,
    /// They end within a record.
    Truncated {
        /// Offset of the record.
        at: usize,
    },
    /// A channel of an unknown number.
    Channel {
        /// The number.
        number: u8,
    },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a recording: {self:?}")
    }
}

impl core::error::Error for CaptureError {}

/// How a message travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// From the publisher to everybody.
    Live,
    /// A question for past batches.
    ReplayRequest,
    /// An answer to one: a batch, or the end.
    ReplayAnswer,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// How it travelled.
    pub channel: Channel,
    /// Its frames.
    pub frames: Vec<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// Sequence number and payload: the last two frames, whatever the release puts before them.
    /// An empty payload ends a replay answer, and its number means nothing.
    pub fn batch(&self) -> Option<(u64, &'a [u8])> {
        let [.., sequence, payload] = self.frames[..] else { return None };
        Some((u64::from_be_bytes(sequence.try_into().ok()?), payload))
    }

    /// The first number that a replay request asks for.
    pub fn requested(&self) -> Option<u64> {
        Some(u64::from_be_bytes((*self.frames.last()?).try_into().ok()?))
    }
}

/// The records of a recording, checked as they come.
#[derive(Clone, Debug)]
pub struct Capture<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Capture<'a> {
    /// Reads a recording from its bytes.
    ///
    /// # Errors
    /// [`CaptureError::Magic`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, CaptureError> {
        const MAGIC: &[u8] = b"KVEVCAP1";
        if !bytes.starts_with(MAGIC) {
            return Err(CaptureError::Magic);
        }
        Ok(Self { bytes, at: MAGIC.len() })
    }

    fn record(&self) -> Option<Result<(Record<'a>, usize), CaptureError>> {
        let mut rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let truncated = CaptureError::Truncated { at: self.at };
        let mut take = |len: usize| {
            let (taken, left) = rest.split_at_checked(len).ok_or(truncated)?;
            rest = left;
            Ok(taken)
        };
        let mut read = || {
            let head = take(2)?;
            let channel = match head[0] {
                0 => Channel::Live,
                1 => Channel::ReplayRequest,
                2 => Channel::ReplayAnswer,
                number => return Err(CaptureError::Channel { number }),
            };
            let mut frames = Vec::new();
            for _ in 0..head[1] {
                let len = take(4)?.iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
                frames.push(take(len)?);
            }
            Ok(Record { channel, frames })
        };
        let record = read();
        Some(record.map(|record| (record, self.bytes.len() - rest.len())))
    }
}

impl<'a> Iterator for Capture<'a> {
    type Item = Result<Record<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.record()? {
            Ok((record, next)) => {
                self.at = next;
                Some(Ok(record))
            }
            Err(error) => {
                self.at = self.bytes.len();
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_broken_ones_are_errors() {
        let mut bytes = b"KVEVCAP1".to_vec();
        bytes.extend([0, 3, 1, 0, 0, 0, b't', 8, 0, 0, 0]);
        bytes.extend(7u64.to_be_bytes());
        bytes.extend([2, 0, 0, 0, 8, 9]);
        let whole: Vec<_> = Capture::new(&bytes).unwrap().collect();
        let [Ok(record)] = &whole[..] else { panic!("{whole:?}") };
        assert_eq!((record.channel, record.batch()), (Channel::Live, Some((7, &[8, 9][..]))));
        for cut in 9..bytes.len() {
            let cut: Vec<_> = Capture::new(&bytes[..cut]).unwrap().collect();
            assert_eq!(cut, [Err(CaptureError::Truncated { at: 8 })]);
        }
        bytes[8] = 9;
        let unknown: Vec<_> = Capture::new(&bytes).unwrap().collect();
        assert_eq!(unknown, [Err(CaptureError::Channel { number: 9 })]);
        assert_eq!(Capture::new(b"KVEVCAP2").unwrap_err(), CaptureError::Magic);
    }
}
