#![doc = include_str!("../README.md")]

mod address;
mod call;
mod client;
mod dial;
mod discovery;
mod entries;
mod environment;
mod error;
mod events;
mod options;
mod policy;
mod random;
mod readable;
mod replicas;
mod tls;
mod transport;
mod trust;

pub use client::{Client, connect};
pub use dial::Transport;
pub use entries::Entries;
pub use error::{ConnectError, Error, Violation};
pub use events::Events;
pub use options::Options;
pub use tls::Tls;

pub use prost;
pub use prost_types;
pub use tonic;

/// The API: its messages, and the generated stubs in `memory_service_client` and `entry_service_client`.
#[allow(missing_docs, clippy::all, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("memoryd.v1");

    /// The API as a serialized `google.protobuf.FileDescriptorSet`, for programs that process arbitrary messages.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.binpb"));
}
