//! The client's methods by their names in the protocol.

use memoryd_client::Client;
use serde_json::{Value, json};

use crate::Trouble;
use crate::messages::{read, written};

/// Calls a unary method.
pub async fn call(client: &Client, method: &str, request: &Value) -> Result<Value, Trouble> {
    let entries = client.entries();
    macro_rules! of {
        ($target:expr, $name:ident) => {
            written(&$target.$name(read(request)?).await?)
        };
    }
    let answer = match method {
        "search" => of!(client, search),
        "explain_miss" => of!(client, explain_miss),
        "recall" => of!(client, recall),
        "get" => of!(client, get),
        "status" => of!(client, status),
        "flush_decision" => of!(client, flush_decision),
        "append" => of!(client, append),
        "write" => of!(client, write),
        "move" => of!(client, move_file),
        "history" => of!(client, history),
        "restore" => of!(client, restore),
        "forget" => of!(client, forget),
        "session_context" => of!(client, session_context),
        "session_archive" => of!(client, session_archive),
        "session_append" => of!(client, session_append),
        "list_agents" => of!(client, list_agents),
        "list_files" => of!(client, list_files),
        "remember" => of!(entries, remember),
        "recall_entries" => of!(entries, recall),
        "forget_entry" => of!(entries, forget),
        "list_entries" => of!(entries, list),
        "suggest_capture" => of!(entries, suggest_capture),
        "recall_block" => of!(entries, recall_block),
        _ => return Err(Trouble::Bad(format!("there is no method {method:?}"))),
    };
    Ok(json!({ "ok": answer }))
}
