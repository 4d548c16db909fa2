//! Stop 8: what writers and queries share. In come words and tenants from lane writers; out goes,
//! to each query, a captured view. Next stop: [`query`](crate::query).

use ckf_core::{AllocationError, Format};
use crossbeam_utils::CachePadded;

use crate::ids::{DcId, Instant, Sequence};
use crate::row::Rows;
use crate::sync::{AtomicU64, Ordering, fence};

/// Rows, ready lanes and tenants of one consumer.
#[derive(Debug)]
pub(crate) struct Table {
    format: Format,
    rows: Rows,
    gate: CachePadded<Gate>,
    tenants: Box<[Tenant]>,
    freshness: Box<[CachePadded<Freshness2>]>,
}

/// What a query reads first and last.
#[derive(Debug, Default)]
struct Gate {
    /// Bit `i`: lane `i` may be used.
    ready: AtomicU64,
    /// Counts changes of tenancy, of all lanes.
    changes: AtomicU64,
}

/// Who a lane's words belong to.
#[derive(Debug, Default)]
struct Tenant {
    dc: AtomicU64,
    /// Value of [`Gate::changes`] when the lane's tenancy last began.
    since: AtomicU64,
}

/// How far a lane has come.
#[derive(Debug, Default)]
struct Freshness2 {
    sequence: AtomicU64,
    last_message: AtomicU64,
}

/// What a query captured at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured {
    pub(crate) ready: u64,
    changes: u64,
}

impl Table {
    pub(crate) fn new(format: Format, lanes: u32) -> Result<Self, AllocationError> {
        let rows = Rows::new(format.bucket_count(), lanes)?;
        Ok(Self {
            format,
            rows,
            gate: CachePadded::default(),
            tenants: (0..lanes).map(|_| Tenant::default()).collect(),
            freshness: (0..lanes).map(|_| CachePadded::default()).collect(),
        })
    }

    #[inline]
    pub(crate) fn format(&self) -> &Format {
        &self.format
    }

    #[inline]
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The lanes that a query may use.
    #[inline]
    pub(crate) fn capture(&self) -> Captured {
        let changes = self.gate.changes.load(Ordering::Acquire);
        Captured { changes, ready: self.gate.ready.load(Ordering::Acquire) }
    }

    /// Of the captured lanes, those whose words belonged to one tenant throughout.
    #[inline]
    pub(crate) fn confirm(&self, captured: Captured) -> u64 {
        fence(Ordering::Acquire);
        if self.gate.changes.load(Ordering::Relaxed) == captured.changes {
            return captured.ready;
        }
        self.confirm_each(captured)
    }

    #[cold]
    fn confirm_each(&self, captured: Captured) -> u64 {
        (0..).zip(&self.tenants).fold(captured.ready, |ready, (lane, tenant)| {
            let changed = tenant.since.load(Ordering::Relaxed) > captured.changes;
            ready & !(u64::from(changed) << lane)
        })
    }

    /// The data center of a lane, for a query between capture and confirm.
    #[inline]
    pub(crate) fn dc(&self, lane: u8) -> DcId {
        DcId::new(self.tenants[usize::from(lane)].dc.load(Ordering::Relaxed))
    }

    pub(crate) fn begin_tenancy(&self, lane: u8, dc: DcId) {
        self.withdraw(lane);
        let tenant = &self.tenants[usize::from(lane)];
        let since = self.gate.changes.fetch_add(1, Ordering::Release) + 1;
        tenant.since.store(since, Ordering::Relaxed);
        fence(Ordering::Release);
        tenant.dc.store(dc.get(), Ordering::Relaxed);
    }

    pub(crate) fn publish(&self, lane: u8) {
        self.gate.ready.fetch_or(1 << lane, Ordering::Release);
    }

    pub(crate) fn withdraw(&self, lane: u8) {
        self.gate.ready.fetch_and(!(1 << lane), Ordering::Release);
    }

    pub(crate) fn note(&self, lane: u8, sequence: Sequence, now: Instant) {
        let freshness = &self.freshness[usize::from(lane)];
        freshness.sequence.store(sequence.get(), Ordering::Relaxed);
        freshness.last_message.store(now.as_millis(), Ordering::Relaxed);
    }
}
