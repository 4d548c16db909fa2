//! The messages and services of `proto/`, generated when the package is built.

/// How ckf frames travel over gRPC: `proto/ckf_feed.proto`.
#[allow(missing_docs, clippy::all, unused_qualifications, unreachable_pub)]
pub mod feed {
    tonic::include_proto!("ckf.feed.v1");
}

/// Dynamo's relay contract: `proto/dynamo_kvrelay_v1.proto`.
#[allow(missing_docs, clippy::all, unused_qualifications, unreachable_pub)]
pub mod dynamo {
    tonic::include_proto!("dynamo.kvrelay.v1");
}
