//! `lossy`: what a lane does when the network fails it: a gap, a lost last batch, silence. Each
//! time the lane is withdrawn rather than wrong, and comes back by a new lease and snapshot.

use std::error::Error;

use ckf_consumer::{Consumer, ConsumerConfig, LaneSession, QueryHandle, SessionEvent};
use ckf_core::BlockHash;
use ckf_examples::setup::{LINK, exchange, format, manifest, producer};
use ckf_producer::{Member, Producer};
use ckf_protocol::{ConsumerId, DcId, Epoch, Instant, Millis};

fn main() -> Result<(), Box<dyn Error>> {
    let format = format(1_000)?;
    let (query, sessions) =
        Consumer::new(&manifest(1, format)?, ConsumerConfig::default(), ConsumerId::new(1))?;
    let session = sessions.into_iter().next().ok_or("a manifest has at least one lane")?;
    let mut story =
        Story { now: Instant::ZERO, producer: producer(0, 1, format)?, session, query, blocks: 0 };

    story.session.assign(DcId::new(0), Epoch::new(1), story.now)?;
    story.store()?;
    story.deliver();
    story.tell("subscribed, snapshot installed");

    story.store()?;
    story.lose();
    story.tell("a batch is lost: nobody knows yet");
    story.store()?;
    story.deliver();
    story.tell("the next batch shows the gap: the lane is withdrawn");
    story.wait_until_ready();
    story.tell("after the back-off: a new lease, a new snapshot");

    story.store()?;
    story.lose();
    story.tell("the last batch before a pause is lost");
    story.beat();
    story.tell("the heartbeat names the batch that is missing");
    story.wait_until_ready();
    story.tell("resubscribed");

    // The producer stops: no batch, no heartbeat.
    story.sleep_until_session_acts();
    story.tell("silence for too long: the lease is given up");
    story.producer = producer(0, 2, format)?;
    story.blocks = 0;
    story.store()?;
    story.wait_until_ready();
    story.tell("the producer is back with a new life and what its workers hold now");
    Ok(())
}

struct Story {
    now: Instant,
    producer: Producer,
    session: LaneSession,
    query: QueryHandle,
    /// Blocks stored so far: the prompt's first ones.
    blocks: u64,
}

impl Story {
    /// A worker stores ten more blocks of the prompt; a batch is published.
    fn store(&mut self) -> Result<(), Box<dyn Error>> {
        let from = self.blocks;
        self.blocks += 10;
        self.producer.store(Member::new(1, 0), &prompt(from, self.blocks));
        self.producer.publish(self.now)?;
        Ok(())
    }

    /// The link carries all frames.
    fn deliver(&mut self) {
        exchange(&mut self.producer, &mut self.session, self.now);
    }

    /// The link drops all frames of the producer.
    fn lose(&mut self) {
        while self.producer.poll_frame(LINK, self.now).is_some() {}
    }

    /// Time passes until the producer has something to say for itself.
    fn beat(&mut self) {
        if let Some((due, _)) = self.producer.poll_timeout() {
            self.now = due;
            self.producer.handle_timeout(due);
        }
        self.deliver();
    }

    /// Time passes until the session has something to do.
    fn sleep_until_session_acts(&mut self) {
        if let Some((due, _)) = self.session.poll_timeout() {
            self.now = due;
            self.session.handle_timeout(due);
        }
    }

    /// Goes through back-offs until queries may use the lane again.
    fn wait_until_ready(&mut self) {
        while self.query.ready().is_empty() {
            self.sleep_until_session_acts();
            self.deliver();
        }
        self.now = self.now.saturating_add(Millis::new(1));
    }

    fn tell(&mut self, what: &str) {
        let depth = self.query.find_prefix(&prompt(0, self.blocks)).best_depth();
        let depth = depth.map_or("absent".to_owned(), |depth| format!("depth {depth}"));
        println!(
            "{:>6} ms  {:<12} {depth:<9} of {:<3} {what}",
            self.now.as_millis(),
            format!("{:?}", self.session.state()),
            self.blocks
        );
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Retired { failure, .. } => println!("{:>26}{failure:?}", ""),
                SessionEvent::Ready { identity, sequence } => {
                    let life = identity.incarnation;
                    println!("{:>26}holds batch {sequence} of incarnation {life}", "");
                }
                other => println!("{:>26}{other:?}", ""),
            }
        }
    }
}

/// Some blocks of the one prompt of this program.
fn prompt(from: u64, to: u64) -> Vec<BlockHash> {
    (from..to).map(|i| BlockHash::new(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
}
