//! Prints the path and the first line of each result of a search.

use std::{env, error::Error};

use memoryd_client::{Options, connect, v1::MemorySearchRequest};

async fn search(query: String) -> Result<(), Box<dyn Error>> {
    let client = connect(Options::new()).await?;
    for result in client.search(MemorySearchRequest { query, ..Default::default() }).await?.results {
        println!("{}: {}", result.path, result.snippet.lines().next().unwrap_or_default());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let query = env::args().nth(1).ok_or("usage: search QUERY")?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(search(query))
}
