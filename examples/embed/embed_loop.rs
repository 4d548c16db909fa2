//! A host that is one loop over non-blocking sockets, without a runtime: all on one thread.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant as Stopwatch};

use ckf_consumer::{Consumer, ConsumerConfig};
use ckf_core::BlockHash;
use ckf_examples::setup::{LINK, format, manifest, producer};
use ckf_protocol::{ConsumerId, DcId, Epoch, Header, Instant, Limits, peek_header};

/// A socket, what came half, and what could not be written yet.
struct Link(TcpStream, Vec<u8>, Vec<u8>);

impl Link {
    /// Writes what can be written; room for another frame once nothing is left of it.
    fn room(&mut self) -> io::Result<Option<&mut Vec<u8>>> {
        let written = or_later(self.0.write(&self.2))?;
        self.2.drain(..written);
        Ok(self.2.is_empty().then_some(&mut self.2))
    }

    /// The next whole frame that has arrived; what comes after it waits in the socket.
    fn frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        while let missing @ 1.. = self.wanted()? - self.1.len() {
            let read = (&self.0).take(missing as u64).read_to_end(&mut self.1);
            if or_later(read)? < missing {
                return Ok(None);
            }
        }
        Ok(Some(std::mem::take(&mut self.1)))
    }

    fn wanted(&self) -> io::Result<usize> {
        let header =
            (self.1.len() >= Header::LEN).then(|| peek_header(&self.1, &Limits::default()));
        header.map_or(Ok(Header::LEN), |header| Ok(header.map_err(io::Error::other)?.frame_len()))
    }
}

fn or_later(done: io::Result<usize>) -> io::Result<usize> {
    done.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(0) } else { Err(error) })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (format, clock) = (format(10_000)?, Stopwatch::now());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut below = Link(TcpStream::connect(listener.local_addr()?)?, Vec::new(), Vec::new());
    let mut above = Link(listener.accept()?.0, Vec::new(), Vec::new());
    [&above, &below].into_iter().try_for_each(|link| link.0.set_nonblocking(true))?;
    let blocks: Vec<BlockHash> = (1..=40).map(BlockHash::new).collect();
    let mut pool = producer(0, 1, format)?;
    pool.store(ckf_producer::Member::new(1, 0), &blocks);
    let (query, mut sessions) =
        Consumer::new(&manifest(1, format)?, ConsumerConfig::default(), ConsumerId::new(1))?;
    let lane = &mut sessions[0];
    lane.assign(DcId::new(0), Epoch::new(1), Instant::ZERO)?;
    while query.find_prefix(&blocks).best_depth() != Some(40) {
        let now = Instant::from_millis(clock.elapsed().as_millis() as u64);
        pool.publish(now)?;
        pool.handle_timeout(now);
        lane.handle_timeout(now);
        if let Some(out) = above.room()? {
            pool.poll_frame(LINK, now).iter().for_each(|frame| frame.write_to(out));
        }
        if let Some(out) = below.room()? {
            out.extend(lane.poll_transmit().into_iter().flatten());
        }
        let _ = above.frame()?.map(|frame| pool.handle_frame(LINK, &frame, now));
        match below.frame()? {
            Some(frame) => drop(lane.handle_frame(&frame, now)),
            // A real loop waits here for its sockets, at most until the earlier `poll_timeout`.
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    println!("all 40 blocks found after {:?}", clock.elapsed());
    Ok(())
}
