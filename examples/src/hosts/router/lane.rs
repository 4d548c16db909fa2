//! The task that keeps one lane fed: the loop that `LaneSession` documents, around one link.

use std::sync::{Arc, Mutex};

use ckf_consumer::{Failure, Handled, LaneSession, SessionEvent, SessionState, SessionStats};
use ckf_protocol::{DcId, Epoch, Instant, ProducerIdentity, Sequence};
use futures::StreamExt;

use super::link::{Frames, Link, is_request};
use super::rhythm::Rhythm;
use crate::hosts::HostResult;
use crate::hosts::clock::Clock;
use crate::hosts::lock;
use crate::log_about;

/// What a lane is doing, for the status page and metrics.
#[derive(Debug, Default)]
pub struct LaneBoard(Mutex<LaneReport>);

/// See [`LaneBoard`].
#[derive(Clone, Debug, Default)]
pub struct LaneReport {
    /// The session's state.
    pub state: Option<SessionState>,
    /// The stream that it follows, and how far.
    pub position: Option<(ProducerIdentity, Sequence)>,
    /// Its counters.
    pub stats: SessionStats,
    /// When the last frame came.
    pub heard: Option<Instant>,
    /// Why the lane was last retired.
    pub last_failure: Option<Failure>,
    /// How often the link broke with an error, or could not be made.
    pub link_errors: u64,
    /// What the link said when it last broke, or could not be made.
    pub last_error: Option<String>,
}

impl LaneReport {
    /// Whether queries may use the lane.
    pub fn is_ready(&self) -> bool {
        self.state == Some(SessionState::Ready)
    }
}

impl LaneBoard {
    /// What it says now.
    pub fn read(&self) -> LaneReport {
        lock(&self.0).clone()
    }

    /// Keeps an error, and logs it unless the one before was the same: of all that the layers say, what
    /// the innermost says.
    fn broke(&self, name: &str, error: &(dyn std::error::Error + Send + Sync + 'static)) {
        let mut cause: &(dyn std::error::Error + 'static) = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let said = cause.to_string();
        self.write(|report| {
            report.link_errors += 1;
            if report.last_error.as_ref() != Some(&said) {
                log_about!(named(name), "{said}");
                report.last_error = Some(said);
            }
        });
    }

    fn write(&self, change: impl FnOnce(&mut LaneReport)) {
        change(&mut lock(&self.0));
    }
}

/// Feeds one lane until the process ends. The log knows the data center by its name.
pub async fn run(
    mut session: LaneSession,
    (dc, name): (DcId, String),
    link: Link,
    clock: Clock,
    board: Arc<LaneBoard>,
    mut rhythm: Rhythm,
) {
    session
        .assign(dc, Epoch::new(1), clock.now())
        .expect("the first epoch of a fresh session is above none");
    let mut frames: Option<Frames> = None;
    loop {
        if let Err(error) = transmit(&mut session, &mut frames, &link).await {
            board.broke(&name, &*error);
            session.handle_disconnected(clock.now());
        }
        while let Some(event) = session.poll_event() {
            tell(&name, event, &board, (&mut rhythm, clock.now()));
        }
        board.write(|report| {
            report.state = Some(session.state());
            report.position = session.position();
            report.stats = *session.stats();
        });
        tokio::select! {
            frame = next(&mut frames) => match frame {
                Some(Ok(frame)) => {
                    let now = clock.now();
                    let heartbeats = session.stats().heartbeats;
                    let handled = session.handle_frame(&frame, now);
                    // Only what is believed is a sign of life.
                    use Handled::{Ignored, Rejected, Retired};
                    if !matches!(handled, Ignored(_) | Rejected(_) | Retired(_)) {
                        rhythm.heard(now);
                        let mut before = None;
                        board.write(|report| before = report.heard.replace(now));
                        if session.stats().heartbeats > heartbeats
                            && let Some(before) = before
                            && let Some(warning) = rhythm.heartbeat(now.saturating_since(before))
                        {
                            log_about!(named(&name), "{warning}");
                        }
                    }
                }
                ended => {
                    if let Some(Err(error)) = ended {
                        board.broke(&name, &*error);
                    }
                    frames = None;
                    session.handle_disconnected(clock.now());
                }
            },
            () = clock.sleep_until(session.poll_timeout().map(|(at, _)| at)) => {
                session.handle_timeout(clock.now());
            }
        }
    }
}

/// A Subscribe frame opens a stream in place of the former one; the end of a stream says all that
/// an Unsubscribe frame would.
async fn transmit(
    session: &mut LaneSession,
    frames: &mut Option<Frames>,
    link: &Link,
) -> HostResult<()> {
    while let Some(frame) = session.poll_transmit() {
        *frames = None;
        if is_request(&frame) {
            *frames = Some(link.open(frame).await?);
        }
    }
    Ok(())
}

/// The next frame; never without a stream.
async fn next(frames: &mut Option<Frames>) -> Option<HostResult<bytes::Bytes>> {
    match frames {
        Some(frames) => frames.next().await,
        None => std::future::pending().await,
    }
}

/// What the log calls a lane.
fn named(name: &str) -> String {
    format!("lane of data center {name}")
}

fn tell(name: &str, event: SessionEvent, board: &LaneBoard, (rhythm, now): (&mut Rhythm, Instant)) {
    match event {
        SessionEvent::Ready { sequence, .. } => {
            rhythm.ready(now);
            log_about!(named(name), "ready at {sequence}")
        }
        SessionEvent::Retired { failure, was_ready } => {
            board.write(|report| report.last_failure = Some(failure));
            if was_ready {
                log_about!(named(name), "retired: {failure:?}");
                if let Some(warning) = rhythm.retired(failure == Failure::Silence) {
                    log_about!(named(name), "{warning}");
                }
            }
        }
        SessionEvent::Rejected { reason } => log_about!(named(name), "rejected: {reason:?}"),
        _ => {}
    }
}
