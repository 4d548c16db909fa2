//! `quickstart [FILE]`: one thread, one data center, every stop from a worker's event to an answer.
//! With a FILE, the frames that crossed the wire are written there, for `inspect`.

use std::error::Error;

use ckf_consumer::{Consumer, ConsumerConfig};
use ckf_core::sequence::Scope;
use ckf_examples::setup::{LINK, format, manifest, producer};
use ckf_producer::Member;
use ckf_producer::source::{
    BlockChange, Direct, EventId, SourceConfig, SourceGeneration, SourceStream,
};
use ckf_protocol::{ConsumerId, DcId, Epoch, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    // The host owns the clock, the links and the seeds; here time stands still.
    let now = Instant::from_millis(0);
    let mut wire = Vec::new();

    // Both ends, and a lease between them.
    let format = format(10_000)?;
    let mut producer = producer(0, 1, format)?;
    let (query, mut sessions) =
        Consumer::new(&manifest(1, format)?, ConsumerConfig::default(), ConsumerId::new(1))?;
    let session = &mut sessions[0];
    session.assign(DcId::new(0), Epoch::new(1), now)?;
    while let Some(frame) = session.poll_transmit() {
        wire.extend_from_slice(&frame);
        println!("lease     {:?}", producer.handle_frame(LINK, &frame, now));
    }
    while let Some(frame) = producer.poll_frame(LINK, now) {
        frame.write_to(&mut wire);
        println!(
            "lease     {:?} gives {:?}",
            frame.kind(),
            session.handle_frame(&frame.to_bytes(), now)
        );
    }

    // A prompt of 640 tokens is ten blocks of 64. A worker has computed the first seven.
    let tokens: Vec<u32> = (0..640).collect();
    let prompt: Vec<_> = Scope::default().block_hashes(&tokens, 64).collect();
    let event = vec![BlockChange::Store(prompt[..7].to_vec())];

    // Stage 1 puts each worker's events in order.
    let mut stream = SourceStream::new(Member::new(7, 0), SourceConfig::new(1), Direct);
    let handled = stream.handle_event(SourceGeneration::new(1), EventId::new(0), event, now);
    println!("stage 1   the worker's first event: {handled:?}");

    while let Some(command) = stream.poll_command() {
        println!("stop 1    a command for {}", stream.member());
        let outcome = producer.apply(&command);
        let stats = producer.pool().stats();
        println!("stop 2    {} blocks have their first owner", outcome.first_owners);
        println!("stop 3    {} fingerprints are in the filter", producer.pool().table().stored());
        println!("stop 4    {} buckets are dirty", stats.dirty_buckets);
    }
    println!("stop 5    published as batch {:?}", producer.publish(now)?);
    while let Some(frame) = producer.poll_frame(LINK, now) {
        println!("stop 6    a {:?} of {} bytes on the wire", frame.kind(), frame.len());
        frame.write_to(&mut wire);
        println!("stop 7    the lane session: {:?}", session.handle_frame(&frame.to_bytes(), now));
    }
    println!("stop 8    the lane is {:?}: any thread may read it", session.state());
    let matches = query.find_prefix(&prompt);
    println!("stop 9    {} lane was asked about {} blocks", matches.ready().len(), matches.asked());
    for (lane, dc, depth) in matches.iter() {
        println!("stop 10   lane {lane}: data center {dc} holds the first {depth} blocks");
    }

    if let Some(path) = std::env::args_os().nth(1) {
        std::fs::write(path, wire)?;
    }
    Ok(())
}
