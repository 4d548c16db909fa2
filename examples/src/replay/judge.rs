//! Answers of the consumer against the truth.

use ckf_core::BlockHash;

use super::oracle::Oracle;

/// Counts of answers, one per query and ready lane, and of wrong choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Judge {
    /// As the oracle says.
    pub equal: u64,
    /// Deeper.
    pub over: u64,
    /// Less deep.
    pub under: u64,
    /// Queries whose deepest DC by the answers is not one of the deepest by the oracle.
    pub best_dc_wrong: u64,
}

impl Judge {
    /// Judges the answers of one query: `depths` has one entry a DC, `None` for a lane that was not
    /// ready. Such a lane is not judged, but when its DC is the best, missing it is a wrong choice.
    pub fn judge(&mut self, depths: &[Option<usize>], oracle: &Oracle, prompt: &[BlockHash]) {
        let exact: Vec<usize> = (0..depths.len()).map(|dc| oracle.depth(dc, prompt)).collect();
        for (depth, exact) in depths.iter().zip(&exact) {
            match depth.map(|depth| depth.cmp(exact)) {
                Some(std::cmp::Ordering::Equal) => self.equal += 1,
                Some(std::cmp::Ordering::Greater) => self.over += 1,
                Some(std::cmp::Ordering::Less) => self.under += 1,
                None => {}
            }
        }
        let deepest = depths.iter().copied().map(|depth| depth.unwrap_or(0)).max().unwrap_or(0);
        let chosen = depths.iter().position(|depth| depth.unwrap_or(0) == deepest).unwrap_or(0);
        let best = exact.iter().copied().max().unwrap_or(0);
        self.best_dc_wrong += u64::from(exact.get(chosen).is_some_and(|&exact| exact < best));
    }

    /// All answers.
    pub fn answers(&self) -> u64 {
        self.equal + self.over + self.under
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::cache::Served;

    #[test]
    fn each_answer_is_counted_once_and_absent_lanes_are_not() {
        let prompt: Vec<_> = (0..9).map(BlockHash::new).collect();
        let mut oracle = Oracle::new(3);
        for (dc, depth) in [(0, 4), (1, 7)] {
            oracle.served(dc, &Served { stored: prompt[..depth].to_vec(), ..Served::default() });
        }
        let judged = |depths: &[Option<usize>]| {
            let mut judge = Judge::default();
            judge.judge(depths, &oracle, &prompt);
            (judge.equal, judge.over, judge.under, judge.best_dc_wrong)
        };
        assert_eq!(judged(&[Some(4), Some(7), Some(0)]), (3, 0, 0, 0));
        assert_eq!(judged(&[Some(8), Some(7), Some(0)]), (2, 1, 0, 1));
        assert_eq!(judged(&[Some(4), Some(3), None]), (1, 0, 1, 1));
        assert_eq!(judged(&[Some(4), None, Some(1)]), (1, 1, 0, 1));
        assert_eq!(judged(&[None, None, None]), (0, 0, 0, 1));
        oracle.lost(0, prompt.clone());
        oracle.lost(1, prompt.clone());
        let mut judge = Judge::default();
        judge.judge(&[None, Some(0), Some(0)], &oracle, &prompt);
        assert_eq!((judge.answers(), judge.best_dc_wrong), (2, 0));
    }
}
