//! What must hold at any time, and how everything ends.

use ckf_producer::Member;
use ckf_producer::source::{Doubt, SourceStream, StreamState};

use super::model::{Blocks, Follower};
use super::{Bench, MEMBERS, POOL_QUEUE, QUEUE, Tells, generation, told};

impl Bench {
    /// What is held is what the stream's front made of the events, and never too much.
    pub(super) fn check_held(&self, member: Member) {
        let Some(stream) = self.sources.stream(member) else { return };
        let (empty, front) = (Blocks::new(), stream.front());
        let held = self.held.get(&member).unwrap_or(&empty);
        assert_eq!(held, &front.known, "{member}");
        let Some(life) = stream.generation().map(|life| life.get() as usize) else {
            assert!(held.is_empty(), "{member} was never heard of");
            return;
        };
        let applied = stream.applied().map_or(0, |id| (id.get() - self.first + 1) as usize);
        let (state, placeable) = self.lives[&member][life].state(applied);
        assert!(held.is_subset(&state), "{member} as of {:?}", stream.applied());
        let doubt = match stream.state() {
            StreamState::Live => None,
            StreamState::Recovering { doubt } => doubt,
            _ => Some(Doubt::Failed),
        };
        match doubt {
            Some(Doubt::FirstContact | Doubt::Replaced | Doubt::Failed | Doubt::Backlog) => {
                assert!(held.is_empty(), "{member}: {doubt:?}");
            }
            Some(Doubt::Host) => {}
            _ => {
                assert!(front.last.is_none_or(|last| last == (life, applied)));
                let is_exact = front.from == Some(0);
                assert!(!is_exact || placeable.is_subset(held), "{member} lost something");
                let was_told = is_exact || applied == 0 || stream.stats().started_over > 0;
                assert!(was_told, "{member} knows nothing");
            }
        }
    }

    pub(super) fn check(&mut self) {
        let mut sum = (0, 0);
        for member in self.sources.members() {
            let stream = self.sources.stream(member).expect("it is there");
            let (events, bytes) = stream.queued();
            assert!(events <= QUEUE.0 as usize && bytes <= QUEUE.1);
            sum = (sum.0 + events, sum.1 + bytes);
            let at = (stream.generation(), stream.applied());
            let before = self.applied.insert(member, at);
            assert!(before <= Some(at), "{member} went back from {before:?} to {at:?}");
            if let Some(left) = self.left.remove(&member) {
                assert!(stream.generation() > Some(left), "late data brought {member} back");
            }
            let recovering = matches!(stream.state(), StreamState::Recovering { .. });
            assert_eq!(stream.poll_timeout().is_some(), recovering);
        }
        assert_eq!(sum, self.sources.queued());
        assert!(sum.0 <= POOL_QUEUE.0 && sum.1 <= POOL_QUEUE.1);
        assert!(self.sources.members().count() <= MEMBERS.len());
        let readiness = self.sources.readiness();
        assert!(readiness.recovered <= readiness.expected);
    }

    /// Nobody answers any more: every recovery fails at its deadline and says so, unless it was only
    /// about orphans.
    pub(super) fn fall_silent(&mut self) {
        self.drain();
        let states = |bench: &Self| {
            MEMBERS.map(|member| bench.sources.stream(member).map(SourceStream::state))
        };
        let recovers = |state| matches!(state, Some(StreamState::Recovering { .. }));
        let (before, failed) = (states(self), self.sources.stats().failures);
        for calls in 0.. {
            let Some((due, _)) = self.sources.poll_timeout() else { break };
            assert!(calls < 300, "no end of waiting");
            let now = self.now.latest(due);
            self.now = now;
            self.call(|sources| sources.handle_timeout(now));
            self.drain();
            self.check();
        }
        let mut fails = 0;
        for (before, after) in before.into_iter().zip(states(self)).filter(|pair| recovers(pair.0))
        {
            let is_live = after == Some(StreamState::Live);
            fails += u64::from(!is_live);
            let may_live = before == Some(StreamState::Recovering { doubt: Some(Doubt::Orphans) });
            assert!(after == Some(StreamState::Failed) || (is_live && may_live), "{after:?}");
        }
        assert_eq!(self.sources.stats().failures - failed, fails);
    }

    /// What is on the way arrives, every question is answered: the streams end with the last events of
    /// their sources, and as much as these can tell, after few questions.
    pub(super) fn calm_down(&mut self) {
        if let Tells::Latest { holes } = &mut self.tells {
            *holes = 0;
        }
        self.drain();
        for (member, life, index) in core::mem::take(&mut self.network) {
            self.hand(member, life, index);
            self.drain();
        }
        for member in MEMBERS {
            let (life, source) = self.life(member);
            if source.events.is_empty() {
                // Numbering that starts anywhere says nothing before it starts.
                source.publish(told(life, 1, None, Vec::new()));
            }
            let now = self.now;
            self.bounded(|sources| sources.announce(member, generation(life), now));
            self.left.remove(&member);
            self.heartbeat(member);
        }
        for rounds in 0.. {
            assert!(rounds < 60, "no end of questions");
            self.drain();
            self.check();
            self.questions.clear();
            self.ask();
            for (request, published) in core::mem::take(&mut self.questions) {
                let life = request.generation.get() as usize;
                self.answer(request, life, published, usize::MAX, true);
            }
            // Sources go on telling that they are there. After a number that never was has been
            // forgotten, only that shows what came after the answer.
            MEMBERS.into_iter().for_each(|member| self.heartbeat(member));
            let live = |stream: &SourceStream<Follower>| stream.state() == StreamState::Live;
            if MEMBERS.iter().all(|member| self.sources.stream(*member).is_some_and(live)) {
                break;
            }
            if let Some((due, _)) = self.sources.poll_timeout() {
                let now = self.now.latest(due);
                self.now = now;
                self.call(|sources| sources.handle_timeout(now));
            }
        }
        self.drain();
        for member in MEMBERS {
            let (life, source) = self.life(member);
            let published = source.events.len();
            let stream = self.sources.stream(member).expect("it was announced");
            assert_eq!(stream.generation(), Some(generation(life)));
            assert_eq!(stream.applied(), self.last_id(published));
            self.check_held(member);
        }
    }
}
