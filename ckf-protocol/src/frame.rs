//! Frames: a header of 24 bytes and a body. One body is encoded once and shared by all subscribers;
//! only the header, which names the lease, is made for each.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::checksum::crc;
use crate::codec::{Fields, put};
use crate::error::{DecodeError, Fault};
use crate::layout::{self, header};
use crate::{LeaseId, Limits, VersionRange};

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    /// Consumer to producer: asks for a lease.
    Subscribe = 1,
    /// Consumer to producer: gives a lease back.
    Unsubscribe = 2,
    /// Producer to consumer: no lease, and why.
    Reject = 16,
    /// Producer to consumer: the lease, and a snapshot that starts.
    SnapshotBegin = 17,
    /// Producer to consumer: some buckets of the snapshot.
    SnapshotChunk = 18,
    /// Producer to consumer: the snapshot is complete.
    SnapshotEnd = 19,
    /// Producer to consumer: a batch, or a part of one.
    Delta = 20,
    /// Producer to consumer: still there, and where.
    Heartbeat = 21,
    /// Producer to consumer: the lease ends.
    Retire = 22,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Reject,
        Self::SnapshotBegin,
        Self::SnapshotChunk,
        Self::SnapshotEnd,
        Self::Delta,
        Self::Heartbeat,
        Self::Retire,
    ];

    /// The kind with this code.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Subscribe,
            2 => Self::Unsubscribe,
            16 => Self::Reject,
            17 => Self::SnapshotBegin,
            18 => Self::SnapshotChunk,
            19 => Self::SnapshotEnd,
            20 => Self::Delta,
            21 => Self::Heartbeat,
            22 => Self::Retire,
            _ => return None,
        })
    }

    /// The code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether its frames name a lease.
    pub const fn has_lease(self) -> bool {
        !matches!(self, Self::Subscribe | Self::Reject)
    }
}

/// A frame's header, checked on its own: magic, header checksum, length limit.
///
/// Its layout is the same in all wire versions, so that frames of an unknown version or kind can be
/// told apart, skipped, or ignored because of a foreign lease, before their body is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    version: u8,
    kind: u8,
    body_len: u32,
    lease: Option<LeaseId>,
    body_crc: u32,
}

/// Reads the header of the frame that starts `bytes`. Cost: a checksum of 20 bytes.
///
/// A stream transport waits until [`Header::LEN`] bytes are there, calls this, and then waits for
/// [`Header::frame_len`] bytes in all.
///
/// # Errors
/// [`DecodeError`] when `bytes` is shorter than a header, or the magic, the checksum or the length
/// is wrong. A stream that gives such an error has lost its frame boundaries and must be closed.
pub fn peek_header(bytes: &[u8], limits: &Limits) -> Result<Header, DecodeError> {
    let (fields, _) = Fields::prefix(bytes, 0, header::LEN)?;
    let magic = fields.u16(header::MAGIC);
    if magic != layout::MAGIC {
        return Err(fields.value(header::MAGIC, u64::from(magic)));
    }
    let found = fields.u32(header::HEADER_CRC);
    let expected = crc(&bytes[..header::HEADER_CRC.at]);
    if found != expected {
        return Err(fields.error(header::HEADER_CRC, Fault::Checksum { found, expected }));
    }
    let body_len = fields.u32(header::BODY_LENGTH);
    if body_len as usize > limits.max_body() {
        let (value, limit) = (u64::from(body_len), limits.max_body() as u64);
        return Err(fields.error(header::BODY_LENGTH, Fault::Limit { value, limit }));
    }
    Ok(Header {
        version: fields.u8(header::VERSION),
        kind: fields.u8(header::KIND),
        body_len,
        lease: LeaseId::new(fields.u64(header::LEASE)),
        body_crc: fields.u32(header::BODY_CRC),
    })
}

impl Header {
    /// Bytes of a header.
    pub const LEN: usize = header::LEN;

    /// The wire version of the body.
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// The kind's code, whether known or not.
    pub const fn kind_code(&self) -> u8 {
        self.kind
    }

    /// Bytes of the body.
    pub const fn body_len(&self) -> usize {
        self.body_len as usize
    }

    /// Bytes of the frame.
    pub const fn frame_len(&self) -> usize {
        header::LEN + self.body_len as usize
    }

    /// The lease that the frame belongs to.
    pub const fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    /// What the frame carries.
    ///
    /// # Errors
    /// [`Fault::Version`], [`Fault::Kind`], or [`Fault::Lease`] where a lease is present or absent
    /// against the kind.
    pub fn kind(&self) -> Result<Kind, DecodeError> {
        if !VersionRange::SUPPORTED.contains(self.version) {
            return Err(Self::error(header::VERSION, Fault::Version { version: self.version }));
        }
        let Some(kind) = Kind::from_code(self.kind) else {
            return Err(Self::error(header::KIND, Fault::Kind { kind: self.kind }));
        };
        if kind.has_lease() != self.lease.is_some() {
            return Err(Self::error(header::LEASE, Fault::Lease));
        }
        Ok(kind)
    }

    /// This header under another lease: its bytes, to be followed by the same body. Cost: a checksum
    /// of 20 bytes; the body is neither read nor copied.
    ///
    /// With it a host passes on what one subscriber receives, to any number of others. Every kind but
    /// [`Kind::SnapshotBegin`] may be passed on so; the body of that one names the receiver
    /// ([`LeaseTerms`](crate::LeaseTerms)) and has to be decoded, changed and encoded.
    ///
    /// # Errors
    /// [`Fault::Lease`] where there is no lease to replace.
    pub fn with_lease(&self, lease: LeaseId) -> Result<[u8; header::LEN], DecodeError> {
        if self.lease.is_none() {
            return Err(Self::error(header::LEASE, Fault::Lease));
        }
        Ok(Self { lease: Some(lease), ..*self }.to_bytes())
    }

    fn to_bytes(self) -> [u8; header::LEN] {
        let mut bytes = [0; header::LEN];
        put(&mut bytes, header::MAGIC, layout::MAGIC.to_le_bytes());
        put(&mut bytes, header::VERSION, [self.version]);
        put(&mut bytes, header::KIND, [self.kind]);
        put(&mut bytes, header::BODY_LENGTH, self.body_len.to_le_bytes());
        put(&mut bytes, header::LEASE, self.lease.map_or(0, LeaseId::get).to_le_bytes());
        put(&mut bytes, header::BODY_CRC, self.body_crc.to_le_bytes());
        let header_crc = crc(&bytes[..header::HEADER_CRC.at]);
        put(&mut bytes, header::HEADER_CRC, header_crc.to_le_bytes());
        bytes
    }

    fn error(field: layout::Field, fault: Fault) -> DecodeError {
        DecodeError { field: field.name, offset: field.at as u32, fault }
    }

    /// The body of `frame`, the bytes whose header this is; exactly one frame.
    ///
    /// # Errors
    /// [`Fault::Truncated`], [`Fault::Trailing`] or [`Fault::Checksum`].
    pub fn body<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let (_, body) = Fields::prefix(frame, 0, header::LEN)?;
        Fields::exact(body, header::LEN, self.body_len())?;
        let expected = crc(body);
        if expected != self.body_crc {
            let fault = Fault::Checksum { found: self.body_crc, expected };
            return Err(Self::error(header::BODY_CRC, fault));
        }
        Ok(body)
    }
}

/// An encoded body of a kind that needs a lease, ready for any number of subscribers.
///
/// Cloning and making frames share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedBody {
    kind: Kind,
    crc: u32,
    bytes: Arc<[u8]>,
}

impl SharedBody {
    pub(crate) fn new(kind: Kind, bytes: &[u8]) -> Self {
        debug_assert!(kind.has_lease());
        Self { kind, crc: crc(bytes), bytes: Arc::from(bytes) }
    }

    /// The frame for one subscriber. Cost: a checksum of 20 bytes; the body is shared.
    pub fn frame(&self, lease: LeaseId) -> Frame {
        Frame::new(self.kind, Some(lease), self.crc, Arc::clone(&self.bytes))
    }

    /// What it carries.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of each frame made of it.
    pub fn frame_len(&self) -> usize {
        header::LEN + self.bytes.len()
    }
}

impl fmt::Debug for SharedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBody({:?}, {} bytes)", self.kind, self.bytes.len())
    }
}

/// A frame to send: its own header, a body that other frames may share.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    header: [u8; header::LEN],
    body: Arc<[u8]>,
}

impl Frame {
    fn new(kind: Kind, lease: Option<LeaseId>, body_crc: u32, body: Arc<[u8]>) -> Self {
        debug_assert_eq!(kind.has_lease(), lease.is_some());
        let (version, kind, body_len) = (VersionRange::CURRENT, kind.code(), body.len() as u32);
        let header = Header { version, kind, body_len, lease, body_crc };
        Self { header: header.to_bytes(), body }
    }

    /// A frame that is not shared.
    pub(crate) fn single(kind: Kind, lease: Option<LeaseId>, body: &[u8]) -> Self {
        Self::new(kind, lease, crc(body), Arc::from(body))
    }

    /// What it carries.
    pub fn kind(&self) -> Kind {
        Kind::from_code(self.header[header::KIND.at]).expect("a frame is made from a kind")
    }

    /// The lease in its header.
    pub fn lease(&self) -> Option<LeaseId> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.header[header::LEASE.at..][..8]);
        LeaseId::new(u64::from_le_bytes(bytes))
    }

    /// The first part of its bytes.
    pub fn header(&self) -> &[u8; header::LEN] {
        &self.header
    }

    /// The rest of its bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Its bytes in number, never 0.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        header::LEN + self.body.len()
    }

    /// Appends its bytes.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        out.extend_from_slice(&self.header);
        out.extend_from_slice(&self.body);
    }

    /// Its bytes in a row.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out);
        out
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:?}, {:?}, {} bytes)", self.kind(), self.lease(), self.len())
    }
}
