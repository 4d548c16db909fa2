//! Stop 8: what writers and queries share. In come words and tenants from lane writers; out goes,
//! to each query, a captured view. Next stop: [`query`](crate::query).
//!
//! # Orderings
//! Four kinds of words are shared: bucket words, one `ready` mask, one count of tenancy `changes`,
//! and per lane its tenant (`dc`, `since`) and how far it has come. Bucket words and tenants are
//! read and written relaxed; three pairings order them. Each names its test in `tests/loom.rs`.
//!
//! 1. *Publication.* [`publish`](Table::publish) sets the ready bit with release, after all words of
//!    the installation; [`capture`](Table::capture) reads the mask with acquire. A query that sees
//!    the bit sees all those words, or later ones. (`publication_shows_the_whole_installation`)
//! 2. *Tenancy, seen at the end.* [`begin_tenancy`](Table::begin_tenancy) counts a change, then a
//!    release fence, then come the first words and the name of the new tenant. A query reads
//!    words, then an acquire fence, then the count ([`confirm`](Table::confirm)). If a word or name
//!    of the new tenant was read, the fences pair, the changed count is seen, and the lane is left
//!    out. (`no_answer_names_one_pool_with_the_words_of_another`)
//! 3. *Tenancy, seen at the start.* `begin_tenancy` withdraws the lane before it counts, and counts
//!    with release; `capture` reads the count with acquire before it reads the mask. A query that
//!    starts from the new count therefore does not see the ready bit of the former tenancy, only
//!    of the new one. (the same test)
//!
//! A lane's `since` is stored between count and fence: whoever sees the lane's new words sees it
//! too (pairing 2), so that a change of one lane does not leave out others.
//! (`a_change_of_one_lane_leaves_the_other_in_the_answer`)
//!
//! Withdrawal pairs with nothing: a query that captured the lane before may finish with its words,
//! which stay as they are until a tenancy begins. (`a_retired_lane_may_be_finished_with`)
//! Writers of different lanes touch different words, and share only the two words at the gate, by
//! read-modify-write. (`two_lanes_are_written_by_two_threads`)

use ckf_core::{Addressing, Format};
use ckf_protocol::{DcId, Instant, Lane, Sequence};
use crossbeam_utils::CachePadded;

use crate::lanes::{Backend, Chosen};
use crate::row::Rows;
use crate::sync::{AtomicU64, Ordering, fence};

/// Rows, ready lanes and tenants of one consumer.
#[derive(Debug)]
pub(crate) struct Table {
    format: Format,
    addressing: Addressing,
    rows: Rows,
    scan: Chosen,
    gate: CachePadded<Gate>,
    dcs: Box<[AtomicU64]>,
    /// Values of [`Gate::changes`] when the lanes' tenancies last began.
    since: Box<[AtomicU64]>,
    noted: Box<[CachePadded<Noted>]>,
}

/// What a query reads first and last.
#[derive(Debug, Default)]
struct Gate {
    /// Bit `i`: lane `i` may be used.
    ready: AtomicU64,
    /// Counts beginnings of tenancies, of all lanes.
    changes: AtomicU64,
}

/// How far a lane has come.
#[derive(Debug, Default)]
struct Noted {
    sequence: AtomicU64,
    last_message: AtomicU64,
}

/// What a query captured at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured {
    /// Bit `i`: the query may use lane `i`.
    pub(crate) ready: u64,
    changes: u64,
}

impl Table {
    pub(crate) fn new(format: Format, lanes: usize, rows: Rows, scan: Chosen) -> Self {
        let words = || (0..lanes).map(|_| AtomicU64::default()).collect();
        Self {
            addressing: format.addressing(),
            format,
            rows,
            scan,
            gate: CachePadded::default(),
            dcs: words(),
            since: words(),
            noted: (0..lanes).map(|_| CachePadded::default()).collect(),
        }
    }

    #[inline]
    pub(crate) fn format(&self) -> &Format {
        &self.format
    }

    #[inline]
    pub(crate) fn addressing(&self) -> Addressing {
        self.addressing
    }

    #[inline]
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The row scan.
    #[inline]
    pub(crate) fn scan(&self) -> Chosen {
        self.scan
    }

    pub(crate) fn backend(&self) -> Backend {
        self.scan.backend()
    }

    /// The lanes that a query may use.
    #[inline]
    pub(crate) fn capture(&self) -> Captured {
        // Acquire, before the mask: pairing 3.
        let changes = self.gate.changes.load(Ordering::Acquire);
        // Acquire: pairing 1.
        Captured { changes, ready: self.gate.ready.load(Ordering::Acquire) }
    }

    /// Of the captured lanes, those whose words had one tenant from then to now.
    #[inline]
    pub(crate) fn confirm(&self, captured: Captured) -> u64 {
        // After all words that the query has read: pairing 2.
        fence(Ordering::Acquire);
        if self.gate.changes.load(Ordering::Relaxed) == captured.changes {
            return captured.ready;
        }
        self.confirm_each(captured)
    }

    #[cold]
    fn confirm_each(&self, captured: Captured) -> u64 {
        (0..).zip(&self.since).fold(captured.ready, |ready, (lane, since)| {
            let changed = since.load(Ordering::Relaxed) > captured.changes;
            ready & !(u64::from(changed) << lane)
        })
    }

    /// The data centers of all lanes, for a query between capture and confirm.
    #[inline]
    pub(crate) fn read_dcs(&self, dcs: &mut [u64; Lane::MAX_COUNT]) {
        for (to, dc) in dcs.iter_mut().zip(&self.dcs) {
            *to = dc.load(Ordering::Relaxed);
        }
    }

    /// The data center of one lane, likewise.
    pub(crate) fn dc(&self, lane: Lane) -> DcId {
        DcId::new(self.dcs[lane.to_usize()].load(Ordering::Relaxed))
    }

    /// How far one lane has come, likewise.
    pub(crate) fn noted(&self, lane: Lane) -> (Sequence, Instant) {
        let noted = &self.noted[lane.to_usize()];
        let sequence = noted.sequence.load(Ordering::Relaxed);
        let millis = noted.last_message.load(Ordering::Relaxed);
        (Sequence::new(sequence), Instant::from_millis(millis))
    }

    /// Withdraws a lane and gives it to `dc`. Only then may the new tenant's words be stored.
    pub(crate) fn begin_tenancy(&self, lane: Lane, dc: DcId) {
        self.withdraw(lane);
        // Release, after the withdrawal: pairing 3.
        let since = self.gate.changes.fetch_add(1, Ordering::Release) + 1;
        self.since[lane.to_usize()].store(since, Ordering::Relaxed);
        // Before all that is the new tenant's: pairing 2.
        fence(Ordering::Release);
        self.dcs[lane.to_usize()].store(dc.get(), Ordering::Relaxed);
    }

    /// Lets queries use a lane.
    pub(crate) fn publish(&self, lane: Lane) {
        // Release, after all words of the installation: pairing 1.
        self.gate.ready.fetch_or(1 << lane.get(), Ordering::Release);
    }

    /// Keeps queries that start from now on away from a lane.
    pub(crate) fn withdraw(&self, lane: Lane) {
        self.gate.ready.fetch_and(!(1 << lane.get()), Ordering::Relaxed);
    }

    /// Records how far a lane has come.
    pub(crate) fn note(&self, lane: Lane, sequence: Sequence, now: Instant) {
        let noted = &self.noted[lane.to_usize()];
        noted.sequence.store(sequence.get(), Ordering::Relaxed);
        noted.last_message.store(now.as_millis(), Ordering::Relaxed);
    }
}
