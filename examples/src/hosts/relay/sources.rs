//! Starting and stopping the watchers of engines, from flags and from a file that may change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use super::pool::{PoolHandle, PoolInput};
use crate::hosts::clock::Clock;
use crate::hosts::lock;
use crate::hosts::metrics::Counter;
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
    /// How long an engine's blocks are believed in while nothing proves them.
    pub patience: Duration,
    /// What is watched.
    pub watched: Watched,
    /// Looks at the file that found it absent, half-written or wrong.
    pub file_errors: Arc<Counter>,
}

impl Roster {
    /// Starts what must be watched from the beginning, so that pools know whom to expect.
    ///
    /// # Errors
    /// Flags or file make no sense.
    pub async fn start(&self) -> Result<(), String> {
        self.follow(self.wanted()?).await;
        Ok(())
    }

    /// Follows the file until the process ends. While it makes no sense, nothing changes.
    pub async fn run(self) {
        if self.file.is_none() {
            return;
        }
        let mut ticks = tokio::time::interval(LOOK);
        let mut last_error = String::new();
        loop {
            ticks.tick().await;
            match self.wanted() {
                Ok(wanted) => {
                    last_error.clear();
                    self.follow(wanted).await;
                }
                Err(error) => {
                    self.file_errors.up();
                    if error != last_error {
                        log!("sources stay as they are: {error}");
                        last_error = error;
                    }
                }
            }
        }
    }

    /// What flags and file ask for together.
    fn wanted(&self) -> Result<BTreeSet<SourceSpec>, String> {
        let mut wanted = self.fixed.clone();
        if let Some(path) = &self.file {
            wanted.extend(file::read(path)?);
        }
        let mut members = BTreeSet::new();
        for SourceSpec { pool, member, .. } in &wanted {
            if self.pool(pool).is_none() {
                return Err(format!("source {member}: no --pool `{pool}`"));
            }
            if !members.insert((pool, member)) {
                return Err(format!("two sources of {member} in pool `{pool}`"));
            }
        }
        Ok(wanted)
    }

    async fn follow(&self, wanted: BTreeSet<SourceSpec>) {
        let watched: BTreeSet<_> = lock(&self.watched).keys().cloned().collect();
        // First those that go: another source may take over the same member.
        for spec in watched.difference(&wanted) {
            log!("source gone: {spec}");
            lock(&self.watched).remove(spec);
            if let Some(pool) = self.pool(&spec.pool) {
                let _ = pool.input.send(PoolInput::Forget(spec.member)).await;
            }
        }
        for spec in wanted.difference(&watched) {
            if let Some(pool) = self.pool(&spec.pool) {
                self.watch(spec, pool).await;
            }
        }
    }

    /// Starts the watcher of one source, once its pool expects it.
    async fn watch(&self, spec: &SourceSpec, pool: &PoolHandle) {
        let (ask, questions) = mpsc::channel(4);
        let (done, expected) = oneshot::channel();
        let _ = pool.input.send(PoolInput::Expect(spec.member, ask, done)).await;
        if expected.await.is_err() {
            // Said in the log by the pool; tried again with the next look.
            return;
        }
        log!("source: {spec}");
        let counters = Arc::new(SourceCounters::default());
        lock(&self.watched).insert(spec.clone(), counters.clone());
        let watcher = Watcher {
            spec: spec.clone(),
            counters,
            clock: self.clock,
            pool: pool.news.clone(),
            room: pool.room.clone(),
            questions,
            life: Life::new(first_generation()),
            patience: self.patience,
            doubt: None,
        };
        tokio::spawn(watcher.run());
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
