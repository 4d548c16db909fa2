//! Starting and stopping the watchers of engines, from flags and from a file that may change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use super::pool::{PoolHandle, PoolInput};
use crate::hosts::clock::Clock;
use crate::hosts::source::life::Life;
use crate::hosts::source::spec::SourceSpec;
use crate::hosts::source::zmq::Watcher;
use crate::hosts::source::{SourceCounters, file};
use crate::log;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The sources that are watched now, with their counters.
pub type Watched = Arc<Mutex<BTreeMap<SourceSpec, Arc<SourceCounters>>>>;

/// Keeps the watchers equal to what flags and file say.
pub struct Roster {
    /// The pools that sources may name.
    pub pools: Arc<Vec<PoolHandle>>,
    /// The relay's time.
    pub clock: Clock,
    /// From flags: always watched.
    pub fixed: BTreeSet<SourceSpec>,
    /// The file.
    pub file: Option<PathBuf>,
    /// What is watched.
    pub watched: Watched,
}

impl Roster {
    /// Starts what must be watched from the beginning, so that pools know whom to expect.
    pub async fn start(&mut self) {
        self.follow(self.wanted()).await;
    }

    /// Follows the file until the process ends.
    pub async fn run(self) {
        if self.file.is_none() {
            return;
        }
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            ticks.tick().await;
            self.follow(self.wanted()).await;
        }
    }

    /// `None` while the file is unreadable: then nothing changes.
    fn wanted(&self) -> Option<BTreeSet<SourceSpec>> {
        let mut wanted = self.fixed.clone();
        if let Some(path) = &self.file {
            match file::read(path) {
                Ok(listed) => wanted.extend(listed),
                Err(error) => {
                    log!("sources file: {error}");
                    return None;
                }
            }
        }
        Some(wanted)
    }

    async fn follow(&self, wanted: Option<BTreeSet<SourceSpec>>) {
        let Some(wanted) = wanted else { return };
        let watched: BTreeSet<_> = lock(&self.watched).keys().cloned().collect();
        // First those that go: another source may take over the same member.
        for spec in watched.difference(&wanted) {
            log!("source gone: {spec:?}");
            lock(&self.watched).remove(spec);
            if let Some(pool) = self.pool(&spec.pool) {
                let _ = pool.input.send(PoolInput::Forget(spec.member)).await;
            }
        }
        for spec in wanted.difference(&watched) {
            let Some(pool) = self.pool(&spec.pool).cloned() else {
                log!("source of an unknown pool: {spec:?}");
                continue;
            };
            let counters = Arc::new(SourceCounters::default());
            lock(&self.watched).insert(spec.clone(), counters.clone());
            let (ask, questions) = mpsc::channel(4);
            let (done, expected) = oneshot::channel();
            let _ = pool.input.send(PoolInput::Expect(spec.member, ask, done)).await;
            let _ = expected.await;
            let watcher = Watcher {
                spec: spec.clone(),
                counters,
                clock: self.clock,
                pool: pool.news,
                questions,
                life: Life::new(first_generation()),
            };
            tokio::spawn(watcher.run());
        }
    }

    fn pool(&self, name: &str) -> Option<&PoolHandle> {
        self.pools.iter().find(|pool| pool.plan.name == name)
    }
}

/// Above the generation of any former watcher of the same member.
fn first_generation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}

/// The lock of something that is left consistent even by a thread that panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
