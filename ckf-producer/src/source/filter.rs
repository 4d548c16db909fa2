//! Which of an engine's blocks count: those in the primary medium, of full attention.

use alloc::collections::BTreeMap;

use super::engine::{Attention, Medium, Place};

/// Groups whose kind is remembered. Engines have a handful.
const MAX_GROUPS: usize = 256;

/// Counters of blocks, named in events, that were left out because of the place they lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceStats {
    /// In another medium than the primary one.
    pub other_medium: u64,
    /// In a medium of unknown name.
    pub unknown_medium: u64,
    /// In a group without full attention.
    pub other_group: u64,
    /// On another machine, or owned by somebody else.
    pub elsewhere: u64,
}

/// Tells blocks that count from others, and counts the others.
#[derive(Clone, Debug)]
pub(super) struct PlaceFilter {
    primary: Medium,
    /// What stores taught about groups, since removals do not state a kind.
    full_attention: BTreeMap<u32, bool>,
    stats: PlaceStats,
}

impl PlaceFilter {
    pub(super) fn new(primary: Medium) -> Self {
        Self { primary, full_attention: BTreeMap::new(), stats: PlaceStats::default() }
    }

    pub(super) fn stats(&self) -> PlaceStats {
        self.stats
    }

    /// Whether blocks in this place count. Otherwise adds them to the counters.
    pub(super) fn admits(&mut self, place: &Place, blocks: usize) -> bool {
        // Learned before anything is left out: kinds belong to groups, not to media.
        let full = self.has_full_attention(place);
        let counter = if place.medium == Medium::Unknown {
            &mut self.stats.unknown_medium
        } else if place.medium != self.primary {
            &mut self.stats.other_medium
        } else if place.elsewhere {
            &mut self.stats.elsewhere
        } else if !full {
            &mut self.stats.other_group
        } else {
            return true;
        };
        *counter += blocks as u64;
        false
    }

    fn has_full_attention(&mut self, place: &Place) -> bool {
        match (place.attention, place.group) {
            (Attention::Unstated, None) => true,
            // Engines that number their groups put the main one first.
            (Attention::Unstated, Some(group)) => {
                self.full_attention.get(&group).copied().unwrap_or(group == 0)
            }
            (stated, group) => {
                let full = stated == Attention::Full;
                if let Some(group) = group
                    && (self.full_attention.len() < MAX_GROUPS
                        || self.full_attention.contains_key(&group))
                {
                    self.full_attention.insert(group, full);
                }
                full
            }
        }
    }
}
