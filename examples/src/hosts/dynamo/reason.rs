//! Why a request is refused or a stream ends, as the contract tells it.

use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Status};

/// The reasons that this relay has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    ContractMismatch,
    InvalidRequest,
    PoolNotFound,
    ProducerChanged,
    ResourceLimit,
    SubscriberLagged,
    PublicationUnavailable,
}

/// The status that carries a reason.
pub(super) fn refuse(reason: Reason) -> Status {
    let (code, name) = match reason {
        Reason::ContractMismatch => (Code::FailedPrecondition, "CONTRACT_MISMATCH"),
        Reason::InvalidRequest => (Code::InvalidArgument, "INVALID_REQUEST"),
        Reason::PoolNotFound => (Code::NotFound, "POOL_NOT_FOUND"),
        Reason::ProducerChanged => (Code::FailedPrecondition, "PRODUCER_CHANGED"),
        Reason::ResourceLimit => (Code::ResourceExhausted, "RESOURCE_LIMIT"),
        Reason::SubscriberLagged => (Code::ResourceExhausted, "SUBSCRIBER_LAGGED"),
        Reason::PublicationUnavailable => (Code::Unavailable, "PUBLICATION_UNAVAILABLE"),
    };
    let mut status = Status::new(code, name);
    let name = format!("RELAY_ERROR_REASON_{name}");
    let name = AsciiMetadataValue::try_from(name).expect("ASCII");
    status.metadata_mut().insert("kv-relay-error-reason", name);
    status
}
