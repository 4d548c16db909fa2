//! Both consumers over the same lanes, and what the lanes' members hold.

use std::ops::Range;

use ckf_consumer::{Consumer, ConsumerConfig, LaneSession, QueryHandle};
use ckf_core::{BlockHash, Format, TableDigest};
use ckf_producer::{HashSeeds, Member, PoolConfig, PublishConfig};
use ckf_protocol::{
    ConsumerId, DcId, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, LayoutGeneration,
    Limits, Manifest, PoolId, ProducerIdentity, Sequence,
};
use dynamo_kv_router::indexer::cuckoo::{
    CkfConfig, ConsumerInstanceId, DcCkfFormatIdentity, DcCkfState, GlobalCkfIndexer,
    GlobalCkfManifest, LaneLease, PrefixSearchConfig, ProducerIdentity as TheirIdentity,
};
use dynamo_kv_router::protocols::{KvCacheEvent, KvCacheEventData};
use dynamo_kv_router::{LocalBlockHash, RouterEvent, identity as theirs};

use super::Report;
use super::lane::{Lane, Told, Upstream, What};
use super::record::Record;
use crate::dynamo::{remove_event, store_event};
use crate::workload::{Chain, fresh_chain};

pub const CHAINS: usize = 60;
pub const CHAIN_BLOCKS: usize = 48;
pub const MEMBERS: usize = 3;
/// The first ones are fed by Dynamo's producer, as many others by ours.
const FED_BY_DYNAMO: usize = 2;
const LANES: usize = 2 * FED_BY_DYNAMO;
/// Blocks that the filters are made for: all blocks of all chains fit, at a load of up to 70 %.
const BLOCKS: usize = 3000;

pub struct World {
    lanes: Vec<Lane>,
    ours: QueryHandle,
    theirs: GlobalCkfIndexer,
    chains: Vec<Chain>,
    /// Per lane, member and chain: which blocks.
    held: Vec<[Vec<[bool; CHAIN_BLOCKS]>; MEMBERS]>,
    pub record: Record,
}

fn dc(lane: usize) -> u64 {
    lane as u64 + 1
}

fn domain() -> IndexerDomainId {
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) }
}

fn their_pool(lane: usize) -> theirs::PoolId {
    let explicit = theirs::IdentitySource::Explicit;
    let domain = theirs::IndexerDomainId::new(
        theirs::CacheSemanticsId::new([1; 16], explicit),
        theirs::RoutingScopeId::new([2; 16], explicit),
    );
    theirs::PoolId::new(domain, theirs::DcId::new(dc(lane)))
}

/// Dynamo's consumer, with nothing in it.
fn their_consumer(consumer: ConsumerInstanceId, format: DcCkfFormatIdentity) -> GlobalCkfIndexer {
    let pools = std::array::from_fn(|lane| (lane < LANES).then(|| their_pool(lane)));
    let domain = their_pool(0).indexer_domain();
    let manifest = GlobalCkfManifest::new(consumer, domain, format, pools).expect("a manifest");
    GlobalCkfIndexer::new(manifest, PrefixSearchConfig::default()).expect("memory")
}

impl World {
    pub fn new() -> Self {
        let mut config = CkfConfig::new(BLOCKS);
        config.publish_every_n_events = usize::MAX;
        let state = || DcCkfState::new(config).expect("memory");
        let their_format = state().format();
        let format = Format::power_of_two(their_format.bucket_count() as u64, their_format.seed());
        let format = format.expect("Dynamo's format is one of ours");
        let consumer = ConsumerInstanceId::new(7);
        let theirs = their_consumer(consumer, their_format);
        let manifest = (0..LANES)
            .fold(Manifest::builder(domain(), format), |builder, lane| {
                builder.dc(DcId::new(dc(lane)))
            })
            .build()
            .expect("distinct pools of one domain");
        let (ours, sessions) =
            Consumer::new(&manifest, ConsumerConfig::default(), ConsumerId::new(7))
                .expect("memory");
        let make = |(number, session): (usize, LaneSession)| {
            let dc = DcId::new(dc(number));
            let pool = PoolId { domain: domain(), dc };
            let incarnation = Incarnation::new(1);
            let upstream = if number < FED_BY_DYNAMO {
                Upstream::Dynamo(Box::new(state()))
            } else {
                let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, number as u64]));
                let publish = PublishConfig::default();
                let made = ckf_producer::Producer::new(config, publish, pool, incarnation);
                Upstream::Ours(Box::new(made.expect("memory")))
            };
            Lane {
                upstream,
                session,
                dc,
                identity: ProducerIdentity {
                    pool,
                    incarnation,
                    layout: LayoutGeneration::FIRST,
                    format,
                },
                limits: Limits::default(),
                ingestor: theirs.claim_lane(number).expect("the first claim"),
                their_identity: TheirIdentity::new(their_pool(number), 1, 1, their_format),
                their_lease: LaneLease::new(consumer, number as u8, 0),
                their_sequence: 0,
                mirror: vec![0; format.bucket_count() as usize],
                sequence: Sequence::ZERO,
                digest: TableDigest::EMPTY,
                lease: None,
            }
        };
        let mut lanes: Vec<Lane> = sessions.into_iter().enumerate().map(make).collect();
        lanes.iter_mut().for_each(|lane| lane.lease().expect("a first lease"));
        let chains: Vec<Chain> =
            (0..CHAINS).map(|number| fresh_chain(number, CHAIN_BLOCKS)).collect();
        let none = || std::array::from_fn(|_| vec![[false; CHAIN_BLOCKS]; CHAINS]);
        Self {
            lanes,
            ours,
            theirs,
            record: Record::new([0, FED_BY_DYNAMO], &format, &chains),
            chains,
            held: (0..LANES).map(|_| none()).collect(),
        }
    }

    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    pub fn holds(&self, lane: usize, member: usize, chain: usize, at: usize) -> bool {
        self.held[lane][member][chain][at]
    }

    pub fn lease(&mut self, lane: usize) -> Result<(), String> {
        self.lanes[lane].lease()
    }

    pub fn publish(&mut self, lane: usize) -> Result<usize, String> {
        let images = self.lanes[lane].publish()?;
        self.record.batch(lane, &images);
        Ok(images.len())
    }

    /// All blocks before the range must be held, or Dynamo's producer does not know the parent.
    pub fn store(&mut self, lane: usize, member: usize, chain: usize, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.record.store(lane, member, chain, &range);
        let blocks = &self.chains[chain];
        self.lanes[lane].apply(Told {
            event: store_event(member as u64, blocks, range.start, range.end),
            member: Member::new(member as u64, 0),
            blocks: blocks.sequence[range.clone()].iter().map(|&h| BlockHash::new(h)).collect(),
            what: What::Store,
        });
        self.held[lane][member][chain][range].fill(true);
    }

    pub fn remove(&mut self, lane: usize, member: usize, chain: usize, at: &[usize]) -> usize {
        self.record.remove(lane, member, chain, at);
        let hashes: Vec<u64> = at.iter().map(|&at| self.chains[chain].sequence[at]).collect();
        self.lanes[lane].apply(Told {
            event: remove_event(member as u64, &hashes),
            member: Member::new(member as u64, 0),
            blocks: hashes.iter().map(|&hash| BlockHash::new(hash)).collect(),
            what: What::Remove,
        });
        at.iter().for_each(|&at| self.held[lane][member][chain][at] = false);
        at.len()
    }

    pub fn clear_member(&mut self, lane: usize, member: usize) -> usize {
        self.record.clear(lane, member);
        let data = KvCacheEventData::Cleared;
        let event = KvCacheEvent { event_id: 0, data, dp_rank: 0 };
        self.lanes[lane].apply(Told {
            event: RouterEvent::new(member as u64, event),
            member: Member::new(member as u64, 0),
            blocks: Vec::new(),
            what: What::Clear,
        });
        let held = self.held[lane][member].iter_mut().flatten();
        held.map(|held| usize::from(std::mem::take(held))).sum()
    }

    pub fn compare_tables(&mut self) -> Result<(), String> {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.compare().map_err(|what| format!("lane {number}: {what}"))?;
        }
        Ok(())
    }

    /// Looks the first `len` blocks of a chain up in both consumers.
    pub fn compare_depths(
        &mut self,
        chain: usize,
        len: usize,
        report: &mut Report,
    ) -> Result<(), String> {
        let chain_blocks = &self.chains[chain];
        let local: Vec<_> = chain_blocks.local[..len].iter().copied().map(LocalBlockHash).collect();
        let blocks: Vec<_> =
            chain_blocks.sequence[..len].iter().copied().map(BlockHash::new).collect();
        let theirs = self.theirs.find_prefix_matches(&local).map_err(|error| error.to_string())?;
        let ours = self.ours.find_prefix_walk(&blocks);
        let present: Vec<_> = blocks.iter().map(|&block| self.ours.contains(block)).collect();
        for (number, lane) in self.lanes.iter().enumerate() {
            let lane_bit = lane.session.lane();
            let ours = ours.depth(lane_bit).ok_or("a lane of ours is not ready")?;
            let theirs = theirs.lanes()[number].ok_or("a lane of theirs is not ready")?;
            let theirs = theirs.prefix_depth();
            let leading = present.iter().take_while(|lanes| lanes.contains(lane_bit)).count();
            let any = |at: usize| self.held[number].iter().any(|member| member[chain][at]);
            let exact = (0..len).take_while(|&at| any(at)).count();
            if ours as usize != leading || leading < exact {
                return Err(format!("lane {number}: ours {ours}, probed {leading}, exact {exact}"));
            }
            if present[leading..].iter().any(|lanes| lanes.contains(lane_bit)) {
                report.holed += 1;
                continue;
            }
            if ours != theirs {
                return Err(format!("lane {number}: ours {ours}, Dynamo's {theirs}"));
            }
            self.record.depth(number, chain, len, theirs);
            report.depths_equal += 1;
            report.found += usize::from(ours > 0);
        }
        Ok(())
    }
}
