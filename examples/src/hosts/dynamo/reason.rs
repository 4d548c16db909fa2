//! Why a request is refused or a stream ends, as the contract tells it, and what follows from that.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Status};

use crate::hosts::lock;
use crate::hosts::metrics::{Counter, Labels, Page};
use crate::hosts::proto::dynamo as proto;

/// Carries the reason; the text of a status means nothing.
const TRAILER: &str = "kv-relay-error-reason";
/// What the names in the trailer begin with.
const PREFIX: &str = "RELAY_ERROR_REASON_";
/// How long a relay that does not even tell its name is left alone after it refused for good.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// The reasons of the contract, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reason {
    ContractMismatch,
    InvalidRequest,
    UnsupportedFeature,
    PoolNotFound,
    ProducerChanged,
    ResourceLimit,
    SubscriberLagged,
    SnapshotProgressTimeout,
    PublicationUnavailable,
    InvalidPublication,
    Internal,
}

/// What may be done after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Ask again after a back-off, from the catalog on and for a whole snapshot.
    Again,
    /// Not this generation of the producer again, but the next one.
    NextGeneration,
    /// Not this relay again, as it runs now.
    NextRelay,
}

/// Each reason with its status code and its name.
const TABLE: [(Reason, Code, &str); 11] = [
    (Reason::ContractMismatch, Code::FailedPrecondition, "CONTRACT_MISMATCH"),
    (Reason::InvalidRequest, Code::InvalidArgument, "INVALID_REQUEST"),
    (Reason::UnsupportedFeature, Code::FailedPrecondition, "UNSUPPORTED_FEATURE"),
    (Reason::PoolNotFound, Code::NotFound, "POOL_NOT_FOUND"),
    (Reason::ProducerChanged, Code::FailedPrecondition, "PRODUCER_CHANGED"),
    (Reason::ResourceLimit, Code::ResourceExhausted, "RESOURCE_LIMIT"),
    (Reason::SubscriberLagged, Code::ResourceExhausted, "SUBSCRIBER_LAGGED"),
    (Reason::SnapshotProgressTimeout, Code::ResourceExhausted, "SNAPSHOT_PROGRESS_TIMEOUT"),
    (Reason::PublicationUnavailable, Code::Unavailable, "PUBLICATION_UNAVAILABLE"),
    (Reason::InvalidPublication, Code::FailedPrecondition, "INVALID_PUBLICATION"),
    (Reason::Internal, Code::Internal, "INTERNAL"),
];

impl Reason {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(reason, ..)| *reason)
    }

    /// The reason that a status carries; `None` where it is missing or unknown.
    pub fn of(status: &Status) -> Option<Self> {
        let name = status.metadata().get(TRAILER)?.to_str().ok()?.strip_prefix(PREFIX)?;
        TABLE.iter().find(|(_, _, known)| *known == name).map(|(reason, _, _)| *reason)
    }

    /// The status that carries it.
    pub fn status(self) -> Status {
        let (_, code, name) = TABLE[self as usize];
        let mut status = Status::new(code, name);
        let name = AsciiMetadataValue::try_from(format!("{PREFIX}{name}")).expect("ASCII");
        status.metadata_mut().insert(TRAILER, name);
        status
    }
}

/// What may be done after this status; without a reason, the code decides.
pub fn remedy(status: &Status) -> Remedy {
    use Reason::*;
    match Reason::of(status) {
        Some(ContractMismatch | InvalidRequest | UnsupportedFeature) => Remedy::NextRelay,
        Some(InvalidPublication) => Remedy::NextGeneration,
        None if status.code() == Code::InvalidArgument => Remedy::NextRelay,
        _ => Remedy::Again,
    }
}

/// A status of a relay, for people: the reason, where there is one.
#[derive(Debug)]
pub struct Refused(Status);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Reason::of(&self.0) {
            Some(reason) => write!(f, "the relay says {}", TABLE[reason as usize].2),
            None => write!(f, "{:?}: {}", self.0.code(), self.0.message()),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// What must not be asked again.
#[derive(Clone, Debug, PartialEq)]
enum Barred {
    Relay(proto::RelayIdentity),
    Producer(Box<proto::ProducerIdentity>),
    AnyUntil(Instant),
}

/// How often each reason was given, or none.
#[derive(Debug, Default)]
pub struct ReasonCounters([Counter; TABLE.len() + 1]);

impl ReasonCounters {
    /// Counts one.
    pub fn count(&self, status: &Status) {
        self.0[Reason::of(status).map_or(TABLE.len(), |reason| reason as usize)].up();
    }

    /// Adds them to a scrape.
    pub fn report(&self, page: &mut Page, name: &'static str, labels: Labels<'_>) {
        let names = TABLE.iter().map(|(_, _, reason)| reason.to_ascii_lowercase());
        for (reason, count) in names.chain(["none".to_owned()]).zip(&self.0) {
            let labels = [labels, &[("reason", &reason)]].concat();
            page.counter(name, &labels, count.get());
        }
    }
}

/// What one relay refused to one router, counted, and what follows from it.
#[derive(Debug, Default)]
pub struct Refusals {
    /// By reason.
    pub counters: ReasonCounters,
    barred: Mutex<Option<Barred>>,
}

impl Refusals {
    /// Takes note of an error of the relay, or of the producer that was asked for.
    pub fn note(
        &self,
        status: Status,
        relay: Option<proto::RelayIdentity>,
        producer: Option<&proto::ProducerIdentity>,
    ) -> Refused {
        let barred = match (remedy(&status), relay, producer) {
            (Remedy::NextRelay, Some(relay), _) => Some(Barred::Relay(relay)),
            (Remedy::NextRelay, None, _) => Some(Barred::AnyUntil(Instant::now() + LEFT_ALONE)),
            (Remedy::NextGeneration, _, Some(producer)) => {
                Some(Barred::Producer(Box::new(producer.clone())))
            }
            _ => None,
        };
        if barred.is_some() {
            *lock(&self.barred) = barred;
        }
        self.count(status)
    }

    /// Takes note of an error that concerns nothing else.
    pub fn count(&self, status: Status) -> Refused {
        self.counters.count(&status);
        Refused(status)
    }

    /// Whether anything may be asked now.
    ///
    /// # Errors
    /// The relay refused for good a moment ago, and did not say who it is.
    pub fn may_ask(&self) -> Result<(), &'static str> {
        match *lock(&self.barred) {
            Some(Barred::AnyUntil(until)) if Instant::now() < until => {
                Err("the relay refused for good: left alone for a while")
            }
            _ => Ok(()),
        }
    }

    /// Whether this relay may be asked.
    ///
    /// # Errors
    /// It refused for good.
    pub fn may_ask_relay(&self, relay: proto::RelayIdentity) -> Result<(), &'static str> {
        if *lock(&self.barred) == Some(Barred::Relay(relay)) {
            return Err("the relay refused for good: not asked again before it restarts");
        }
        Ok(())
    }

    /// Whether this producer may be asked for.
    ///
    /// # Errors
    /// Its publication is invalid.
    pub fn may_ask_for(&self, producer: &proto::ProducerIdentity) -> Result<(), &'static str> {
        match &*lock(&self.barred) {
            Some(Barred::Producer(barred)) if **barred == *producer => {
                Err("an invalid publication: not asked for again before the next generation")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_travel_by_name_and_the_rest_goes_by_code() {
        for (at, (reason, code, name)) in TABLE.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            let number = proto::RelayErrorReason::try_from(at as i32 + 1).unwrap();
            assert_eq!(number.as_str_name(), format!("{PREFIX}{name}"));
            let status = reason.status();
            assert_eq!((status.code(), Reason::of(&status)), (code, Some(reason)));
        }
        let mut unknown = Status::unavailable("POOL_NOT_FOUND");
        assert_eq!(Reason::of(&unknown), None, "texts mean nothing");
        unknown.metadata_mut().insert(TRAILER, "RELAY_ERROR_REASON_NEW".parse().unwrap());
        assert_eq!((Reason::of(&unknown), remedy(&unknown)), (None, Remedy::Again));
        assert_eq!(remedy(&Status::invalid_argument("")), Remedy::NextRelay);
        assert_eq!(remedy(&Status::failed_precondition("")), Remedy::Again);
    }

    #[test]
    fn what_was_refused_for_good_is_not_asked_again_until_it_is_another() {
        let relay =
            |relay_incarnation| proto::RelayIdentity { relay_incarnation, ..Default::default() };
        let producer = |producer_incarnation| proto::ProducerIdentity {
            producer_incarnation,
            ..Default::default()
        };
        for (reason, _, name) in TABLE {
            let refusals = Refusals::default();
            let refused = refusals.note(reason.status(), Some(relay(1)), Some(&producer(1)));
            assert_eq!(refused.to_string(), format!("the relay says {name}"));
            assert_eq!(refusals.counters.0[reason as usize].get(), 1);
            use Reason::*;
            let for_good = matches!(reason, ContractMismatch | InvalidRequest | UnsupportedFeature);
            assert_eq!(refusals.may_ask_relay(relay(1)).is_err(), for_good, "{reason:?}");
            assert!(refusals.may_ask_relay(relay(2)).is_ok());
            let invalid = reason == InvalidPublication;
            assert_eq!(refusals.may_ask_for(&producer(1)).is_err(), invalid, "{reason:?}");
            assert!(refusals.may_ask_for(&producer(2)).is_ok() && refusals.may_ask().is_ok());
        }
        let nameless = Refusals::default();
        nameless.note(Reason::ContractMismatch.status(), None, None);
        assert!(nameless.may_ask().is_err());
    }
}
