//! What all lanes of a pool must have in common, domain and format, as their relays tell it.

use std::time::Duration;

use ckf_core::Format;
use ckf_protocol::IndexerDomainId;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use super::client::DynamoLink;
use crate::hosts::HostResult;
use crate::log_about;

/// Pause before a relay that did not tell is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the other relays may take once the first one has told.
const GRACE: Duration = Duration::from_millis(500);

/// Asks all relays at once until one has told, and takes what most of those name that tell about
/// then; among equals, the first. A relay that is away keeps nobody waiting, and one that names
/// something else than the others is the one that is left out.
pub async fn agree(
    relays: &[DynamoLink],
    model: &str,
    block_size: u32,
) -> (IndexerDomainId, Format) {
    gather(relays.iter().map(|relay| move || relay.discover(model, block_size))).await
}

/// See [`agree`]; at least one question.
async fn gather<T, F>(questions: impl Iterator<Item = impl Fn() -> F>) -> T
where
    T: PartialEq + Clone,
    F: Future<Output = HostResult<T>>,
{
    let answers = questions.enumerate().map(|(place, ask)| answer(place, ask));
    let mut answers: FuturesUnordered<_> = answers.collect();
    let mut told: Vec<(usize, T)> = answers.next().await.into_iter().collect();
    let until = Instant::now() + GRACE;
    while !answers.is_empty() {
        tokio::select! {
            answer = answers.next() => told.extend(answer),
            () = sleep_until(until) => break,
        }
    }
    told.sort_by_key(|(place, _)| *place);
    let votes = |found: &T| told.iter().filter(|(_, other)| other == found).count();
    let most = told.iter().rev().max_by_key(|(_, found)| votes(found));
    most.expect("at least one relay has told").1.clone()
}

/// Asks until there is an answer.
async fn answer<T, F>(place: usize, ask: impl Fn() -> F) -> (usize, T)
where
    F: Future<Output = HostResult<T>>,
{
    let mut last = String::new();
    loop {
        match ask().await {
            Ok(found) => return (place, found),
            Err(error) if error.to_string() == last => {}
            Err(error) => {
                last = error.to_string();
                log_about!("what the pool's lanes have in common is not known yet", "{last}");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_dead_delay_nobody_and_the_odd_one_is_outvoted() {
        let dead = |found: &Option<u32>| {
            let found = *found;
            move || async move {
                match found {
                    Some(found) => Ok(found),
                    None => std::future::pending().await,
                }
            }
        };
        for (relays, agreed) in [
            (&[None, None, Some(3)][..], 3),
            (&[Some(1), Some(2), Some(2)], 2),
            (&[Some(1), None, Some(2)], 1),
        ] {
            let started = Instant::now();
            assert_eq!(gather(relays.iter().map(dead)).await, agreed);
            assert!(started.elapsed() < PAUSE, "{relays:?}");
        }
        let tries = std::cell::Cell::new(0);
        let late = || async {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err("not yet".into()) } else { Ok(7) }
        };
        assert_eq!(gather([late].iter()).await, 7);
    }
}
