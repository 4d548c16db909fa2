//! Being asked to end: SIGTERM, or Ctrl-C.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::HostResult;
use crate::log;

/// Whether the process is to end. All copies learn of it.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Told by the first SIGTERM or SIGINT. The second one ends the process at once.
    ///
    /// # Errors
    /// Signals cannot be listened to.
    pub fn on_signal() -> HostResult<Self> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let (tell, stop) = watch::channel(false);
        tokio::spawn(async move {
            for _ in 0..2 {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                if tell.send_replace(true) {
                    log!("asked twice: ends at once");
                    std::process::exit(1);
                }
            }
        });
        Ok(Self(stop))
    }

    /// Never told.
    pub fn never() -> Self {
        Self(watch::channel(false).1)
    }

    /// Whether it was told.
    pub fn is_told(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it is told.
    pub async fn told(&self) {
        if self.0.clone().wait_for(|told| *told).await.is_err() {
            // Nobody is left to tell.
            std::future::pending().await
        }
    }
}
