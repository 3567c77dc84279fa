//! Runs requests in JSON lines with the Rust client; `tests/clients/README.md` describes the protocol.

mod messages;
mod methods;
mod session;

use std::io::{BufRead, Write};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use session::Session;

/// Why a request failed.
enum Trouble {
    /// The call failed with an error of the client.
    Failed(memoryd_client::Error),
    /// The client refused to connect.
    Refused(String),
    /// The request is invalid.
    Bad(String),
}

impl From<memoryd_client::Error> for Trouble {
    fn from(error: memoryd_client::Error) -> Self {
        Self::Failed(error)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut lines = standard_input();
    let mut session = Session::default();
    while let Some(line) = lines.recv().await {
        let request: Value = serde_json::from_str(&line).unwrap_or_default();
        let mut answer = match session.handle(&request).await {
            Ok(answer) => answer,
            Err(trouble) => answer_of(trouble),
        };
        answer["id"] = request["id"].clone();
        writeln!(std::io::stdout(), "{answer}")?;
        std::io::stdout().flush()?;
    }
    session.close().await;
    Ok(())
}

/// Reads the lines of standard input on a separate thread, so that the connection stays active in the meantime.
fn standard_input() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn answer_of(trouble: Trouble) -> Value {
    match trouble {
        Trouble::Refused(message) => json!({ "refused": message }),
        Trouble::Bad(why) => json!({ "bad": why }),
        Trouble::Failed(error) => {
            let violations = error.violations().iter();
            let mut details = json!({
                "code": error.code_name(),
                "reason": error.reason(),
                "message": error.message(),
                "metadata": error.metadata(),
                "violations": violations
                    .map(|each| json!({ "field": each.field, "description": each.description }))
                    .collect::<Vec<_>>(),
            });
            if let Some(pause) = error.retry_after() {
                details["retry_after_ms"] = json!(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
            }
            json!({ "error": details })
        }
    }
}
