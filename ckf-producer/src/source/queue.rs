//! Events that wait for earlier ones, in order of their ids, bounded in number and bytes.

use alloc::collections::BTreeMap;

use super::ids::EventId;

/// A bounded, ordered set of waiting events.
#[derive(Clone, Debug)]
pub(super) struct Queue<E> {
    events: BTreeMap<EventId, (u64, E)>,
    bytes: u64,
    max_events: usize,
    max_bytes: u64,
}

impl<E> Queue<E> {
    pub(super) fn new(max_events: usize, max_bytes: u64) -> Self {
        // With this cap the sum of a full queue and one event more cannot overflow.
        let max_bytes = max_bytes.min(u64::MAX / 2 - 1);
        Self { events: BTreeMap::new(), bytes: 0, max_events, max_bytes }
    }

    pub(super) fn contains(&self, id: EventId) -> bool {
        self.events.contains_key(&id)
    }

    pub(super) fn first(&self) -> Option<EventId> {
        self.events.first_key_value().map(|(id, _)| *id)
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first of the events at the end that follow one another without a hole.
    pub(super) fn last_run(&self) -> Option<EventId> {
        let ids = || self.events.keys().rev();
        let hole =
            ids().zip(ids().skip(1)).find(|(id, before)| before.checked_next() != Some(**id));
        hole.map(|(id, _)| *id).or(self.first())
    }

    /// Whether an event of so many bytes can be added without giving up another one.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let bytes = self.cost(bytes);
        self.events.len() < self.max_events && self.bytes + bytes <= self.max_bytes
    }

    /// What an event counts: with the map's own overhead, so that many empty events are not free.
    fn cost(&self, bytes: u64) -> u64 {
        bytes.saturating_add(size_of::<(EventId, u64, E)>() as u64).min(self.max_bytes + 1)
    }

    /// Adds an event that is not in the queue, then gives up the oldest ones until the limits
    /// hold: a full state that comes later covers those. Returns how many were given up; the new
    /// one may be among them.
    pub(super) fn push(&mut self, id: EventId, bytes: u64, event: E) -> u64 {
        let bytes = self.cost(bytes);
        self.bytes += bytes;
        self.events.insert(id, (bytes, event));
        let over = self.events.len().saturating_sub(self.max_events);
        self.shed(over, self.bytes.saturating_sub(self.max_bytes))
    }

    /// Gives up the oldest events until at least so many, and so many bytes of them, are gone;
    /// returns how many went.
    pub(super) fn shed(&mut self, events: usize, bytes: u64) -> u64 {
        let events = self.events.len().saturating_sub(events);
        let bytes = self.bytes.saturating_sub(bytes);
        let mut given_up = 0;
        while self.events.len() > events || self.bytes > bytes {
            let Some((_, (bytes, _))) = self.events.pop_first() else { break };
            self.bytes -= bytes;
            given_up += 1;
        }
        given_up
    }

    /// Takes one event out.
    pub(super) fn take(&mut self, id: EventId) -> Option<E> {
        let (bytes, event) = self.events.remove(&id)?;
        self.bytes -= bytes;
        Some(event)
    }

    /// Drops all events up to and including `id`; returns how many.
    pub(super) fn drop_through(&mut self, id: EventId) -> u64 {
        let mut dropped = 0;
        while self.first().is_some_and(|first| first <= id) {
            if let Some((_, (bytes, _))) = self.events.pop_first() {
                self.bytes -= bytes;
                dropped += 1;
            }
        }
        dropped
    }

    /// Drops everything; returns how many events.
    pub(super) fn clear(&mut self) -> u64 {
        let dropped = self.events.len() as u64;
        self.events.clear();
        self.bytes = 0;
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u64) -> EventId {
        EventId::new(value)
    }

    #[test]
    fn limits_hold_and_the_newest_stay() {
        let mut queue = Queue::new(3, u64::MAX);
        assert_eq!((0..5).map(|i| queue.push(id(i), 1, i)).sum::<u64>(), 2);
        assert_eq!((queue.first(), queue.last_run()), (Some(id(2)), Some(id(2))));
        assert!(!queue.has_room(1));
        assert_eq!(queue.take(id(3)), Some(3));
        assert_eq!(queue.last_run(), Some(id(4)));
        assert!(queue.has_room(1) && !queue.has_room(u64::MAX));
        assert_eq!(queue.drop_through(id(3)), 1);
        assert_eq!((queue.len(), queue.first()), (1, Some(id(4))));
        assert_eq!(queue.clear(), 1);
        assert_eq!((queue.bytes(), queue.last_run()), (0, None));

        let mut queue = Queue::new(1000, 1000);
        for i in 0..100 {
            queue.push(id(i), 200, i);
            assert!(queue.bytes() <= 1000);
        }
        assert!(queue.len() >= 4 && queue.contains(id(99)));
        let held = queue.len() as u64;
        assert_eq!(queue.push(id(100), u64::MAX, 100), held + 1, "too large for any queue");
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }

    #[test]
    fn limits_are_used_up_to_the_last_byte() {
        let mut queue = Queue::new(2, 1000);
        assert_eq!(queue.push(id(0), 100, 0), 0);
        let rest = 1000 - 2 * queue.bytes() + 100;
        assert!(queue.has_room(rest) && !queue.has_room(rest + 1));
        assert_eq!(queue.push(id(1), rest, 1), 0);
        assert_eq!((queue.len(), queue.bytes()), (2, 1000));
        assert!(!queue.has_room(0));
        assert_eq!((queue.take(id(0)), queue.bytes()), (Some(0), rest + queue.cost(0)));
        assert_eq!(queue.push(id(2), 101, 2), 1, "one byte more costs the oldest");
    }
}
