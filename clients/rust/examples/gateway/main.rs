//! One turn of a gateway: syncs the index, searches, reads a result, asks whether to flush, appends to today's log, and
//! searches for the appended text.
//!
//! ```text
//! cargo run --example gateway -- "how do we roll back a release?"
//! ```
//!
//! The daemon is found as described in the crate's documentation, for example by `MEMORYD_ADDRESS`.

mod progress;

use std::env;
use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use memoryd_client::v1::sync_response::Event;
use memoryd_client::v1::{
    FlushDecisionRequest, MemoryAppendRequest, MemoryAppendResponse, MemoryGetRequest, MemorySearchRequest,
    SearchResult, SyncRequest,
};
use memoryd_client::{Client, Options, connect};

use progress::Bar;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let question = env::args().nth(1).unwrap_or_else(|| "how do we roll back a release?".to_owned());
    let client = connect(Options::new()).await?;
    println!("memoryd at {}", client.address());

    bring_in_sync(&client).await?;
    let results = search(&client, &question, None).await?;
    if let Some(best) = results.first() {
        read(&client, best).await?;
    }
    decide_flush(&client).await?;

    let note =
        format!("The gateway example ran, number {}.", SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis());
    let written = append(&client, &note).await?;
    let results = search(&client, &note, written.index_revision).await?;
    if !results.iter().any(|result| holds(result, &written)) {
        return Err(format!("what was appended to {} was not found", written.path).into());
    }
    println!("found what was appended");
    client.close().await;
    Ok(())
}

async fn bring_in_sync(client: &Client) -> Outcome<()> {
    let mut bar = Bar::new();
    let mut events = client.sync(SyncRequest::default()).await?;
    while let Some(event) = events.message().await? {
        match event.event {
            Some(Event::Progress(progress)) => bar.show(progress.completed_files, progress.total_files),
            Some(Event::FileFailed(failed)) => {
                bar.line(&format!("{} cannot be indexed: {}", failed.path, failed.error))
            }
            Some(Event::Completed(done)) => bar.line(&format!(
                "in sync at revision {}: {} files indexed, {} unchanged, {} removed, {} failed",
                done.index_revision, done.indexed_files, done.unchanged_files, done.removed_files, done.failed_files
            )),
            // Started, heartbeats, and events of newer daemons.
            _ => {}
        }
    }
    Ok(())
}

async fn search(client: &Client, question: &str, min_revision: Option<i64>) -> Outcome<Vec<SearchResult>> {
    let request = MemorySearchRequest { query: question.to_owned(), min_revision, ..Default::default() };
    let answer = client.search(request).await?;
    println!("\nsearched for: {question}");
    for result in &answer.results {
        println!("  {:.2}  {}  {}", result.score, result.citation, first_line(&result.snippet));
    }
    if answer.results.is_empty() {
        println!("  nothing: {}", answer.info.unwrap_or_default().empty_explanation);
    }
    Ok(answer.results)
}

async fn read(client: &Client, result: &SearchResult) -> Outcome<()> {
    let request = MemoryGetRequest {
        path: result.path.clone(),
        start_line: Some(result.start_line),
        line_count: Some(result.end_line - result.start_line + 1),
        ..Default::default()
    };
    let read = client.get(request).await?;
    println!("\n{}, lines {} to {} of {}:", read.path, read.start_line, read.end_line, read.total_lines);
    read.text.lines().for_each(|line| println!("  {line}"));
    Ok(())
}

async fn decide_flush(client: &Client) -> Outcome<()> {
    let request = FlushDecisionRequest {
        total_tokens: Some(179_000),
        incoming_prompt_tokens: 1_200,
        context_window_tokens: 200_000,
        ..Default::default()
    };
    let decision = client.flush_decision(request).await?;
    let verdict = if decision.flush { "flush now" } else { "no flush" };
    println!(
        "\n{verdict}, {}: {} tokens of {}; notes would go to {}",
        decision.reason().as_str_name(),
        decision.projected_tokens,
        decision.threshold_tokens,
        decision.target_path
    );
    Ok(())
}

async fn append(client: &Client, note: &str) -> Outcome<MemoryAppendResponse> {
    let written = client.append(MemoryAppendRequest { text: format!("- {note}"), ..Default::default() }).await?;
    println!("appended to {}, line {}", written.path, written.start_line);
    Ok(written)
}

fn holds(result: &SearchResult, written: &MemoryAppendResponse) -> bool {
    result.path == written.path && (result.start_line..=result.end_line).contains(&written.start_line)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
