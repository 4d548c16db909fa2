//! The consumer's host: one lane session a DC, the query handle, and restarts of the whole.

use ckf_consumer::{
    Consumer, ConsumerConfig, ConsumerError, LaneSession, Matches, QueryHandle, SessionState,
};
use ckf_core::Format;
use ckf_protocol::{ConsumerId, Epoch, Instant, Manifest};

use super::dc::Wire;

/// What the consumer has done since the start, over all its instances.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConsumerCounts {
    /// Snapshots installed.
    pub snapshots: u64,
    /// Subscriptions that followed a failure.
    pub resyncs: u64,
}

/// One consumer process after the other. Lane `i` is DC `i`.
#[derive(Debug)]
pub struct ConsumerHost {
    manifest: Manifest,
    seed: u64,
    instance: ConsumerId,
    query: QueryHandle,
    sessions: Vec<LaneSession>,
    past: ConsumerCounts,
}

impl ConsumerHost {
    /// The first instance, about to subscribe to every pool of the manifest.
    ///
    /// # Errors
    /// [`ConsumerError`] when there is no memory for the table.
    pub fn new(manifest: Manifest, seed: u64) -> Result<Self, ConsumerError> {
        let instance = ConsumerId::new(1);
        let (query, sessions) = start(&manifest, seed, instance, 0)?;
        let past = ConsumerCounts::default();
        Ok(Self { manifest, seed, instance, query, sessions, past })
    }

    /// The handle that answers queries.
    pub fn query(&self) -> &QueryHandle {
        &self.query
    }

    /// What happened so far.
    pub fn counts(&self) -> ConsumerCounts {
        self.sessions.iter().map(LaneSession::stats).fold(self.past, |sum, stats| ConsumerCounts {
            snapshots: sum.snapshots + stats.snapshots,
            resyncs: sum.resyncs + stats.resyncs,
        })
    }

    /// The process starts again: a new instance with an empty table.
    ///
    /// # Errors
    /// [`ConsumerError`] when there is no memory for the table.
    pub fn restart(&mut self, now: u64) -> Result<(), ConsumerError> {
        let instance = ConsumerId::new(self.instance.get() + 1);
        let (query, sessions) = start(&self.manifest, self.seed, instance, now)?;
        self.past = self.counts();
        (self.instance, self.query, self.sessions) = (instance, query, sessions);
        Ok(())
    }

    /// The connection to a DC broke.
    pub fn disconnected(&mut self, dc: usize, now: u64) {
        self.sessions[dc].handle_disconnected(Instant::from_millis(now));
    }

    /// When something is to be done without anything happening outside.
    pub fn next_due(&self) -> Option<u64> {
        let due = self.sessions.iter().filter_map(LaneSession::poll_timeout);
        due.map(|(at, _)| at.as_millis()).min()
    }

    /// Does all that one lane's session can do at `now`. Returns whether anything arrived or was
    /// sent.
    pub fn pump(&mut self, dc: usize, wire: &mut Wire, now: u64) -> bool {
        let at = Instant::from_millis(now);
        let session = &mut self.sessions[dc];
        let mut busy = false;
        session.handle_timeout(at);
        while let Some(frame) = wire.to_consumer.receive(now) {
            busy = true;
            let _handled = session.handle_frame(&frame, at);
        }
        while let Some(frame) = session.poll_transmit() {
            busy = true;
            wire.to_producer.send(frame, now);
        }
        // A real host would log these.
        while session.poll_event().is_some() {}
        busy
    }

    /// Whether a DC's lane is ready and holds exactly these words.
    pub fn holds(&self, dc: usize, format: &Format, words: &[u64]) -> bool {
        let session = &self.sessions[dc];
        let same = |(bucket, &word)| session.store().word(bucket).get() == word;
        session.state() == SessionState::Ready && format.buckets().zip(words).all(same)
    }
}

/// The depth that an answer gives for each of so many DCs; `None` for lanes that were not ready.
pub fn depths(matches: &Matches, dcs: usize) -> Vec<Option<usize>> {
    let mut depths = vec![None; dcs];
    for (_lane, dc, depth) in matches.iter() {
        depths[dc.get() as usize] = Some(depth as usize);
    }
    depths
}

fn start(
    manifest: &Manifest,
    seed: u64,
    instance: ConsumerId,
    now: u64,
) -> Result<(QueryHandle, Vec<LaneSession>), ConsumerError> {
    // Each process must draw its back-off differently; a real host would take a random seed.
    let config = ConsumerConfig::default().with_seed(seed ^ instance.get());
    let (query, mut sessions) = Consumer::new(manifest, config, instance)?;
    for (session, pool) in sessions.iter_mut().zip(manifest.pools()) {
        let assigned = session.assign(pool.dc, Epoch::new(1), Instant::from_millis(now));
        assigned.expect("a new session has used no epoch");
    }
    Ok((query, sessions))
}
