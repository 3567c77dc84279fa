//! Conversion of messages from and to proto3 JSON.

use std::sync::LazyLock;

use memoryd_client::prost::{Message, Name};
use memoryd_client::v1::FILE_DESCRIPTOR_SET;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;

use crate::Trouble;

static CONTRACT: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the client carries its contract"));

/// Parses the message of a request.
pub fn read<M: Message + Name + Default>(json: &Value) -> Result<M, Trouble> {
    let bad = |why: String| Trouble::Bad(format!("{}: {why}", M::NAME));
    let message = DynamicMessage::deserialize(kind::<M>(), json).map_err(|error| bad(error.to_string()))?;
    message.transcode_to().map_err(|error| bad(error.to_string()))
}

/// Returns a response as JSON.
pub fn written<M: Message + Name>(message: &M) -> Value {
    let mut dynamic = DynamicMessage::new(kind::<M>());
    dynamic.transcode_from(message).expect("client and contract agree");
    serde_json::to_value(dynamic).expect("every message has its JSON")
}

fn kind<M: Name>() -> MessageDescriptor {
    CONTRACT.get_message_by_name(&M::full_name()).expect("every message is in the contract")
}
