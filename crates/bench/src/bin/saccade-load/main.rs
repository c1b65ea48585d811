//! Closed-loop load on /v1/completions: N streams at a time, each starting its next request when
//! the last one ended. Prints one JSON object and a line for people. One thread, so that a server
//! on the same machine keeps the other cores; the client's own share is reported.

mod client;
mod summary;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Parser;

use client::{Outcome, Target};

/// Loads an OpenAI-compatible server and measures what its clients see.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Host and port of the server
    #[arg(long, default_value = "127.0.0.1:8000")]
    server: String,
    /// Model name in the requests
    #[arg(long, default_value = "saccade-tiny")]
    model: String,
    /// Streams at one time
    #[arg(long, default_value_t = 1)]
    concurrency: usize,
    /// Requests in all, after the warm-up
    #[arg(long, default_value_t = 64)]
    requests: usize,
    /// Requests before the measurement
    #[arg(long, default_value_t = 4)]
    warmup: usize,
    /// Tokens of each prompt (given as ids)
    #[arg(long, default_value_t = 128)]
    prompt_tokens: usize,
    /// Tokens of each answer, exactly
    #[arg(long, default_value_t = 64)]
    output_tokens: usize,
    /// Prompt ids are drawn below this
    #[arg(long, default_value_t = 256)]
    vocab: u32,
    /// Ask for an event per token, also where it has no text yet (stream_options of vLLM)
    #[arg(long)]
    every_token: bool,
    /// Only the JSON object
    #[arg(long)]
    json: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let target =
        Arc::new(Target::new(&args.server, &args.model, args.output_tokens, args.every_token));
    run(&target, &args, args.warmup, 1).await?;
    let (wall, cpu) = (Instant::now(), client::thread_cpu_seconds());
    let outcomes = run(&target, &args, args.requests, args.concurrency).await?;
    let wall_s = wall.elapsed().as_secs_f64();
    let client_share = (client::thread_cpu_seconds() - cpu) / wall_s;
    let summary = summary::summarise(&outcomes, wall_s, client_share, args.concurrency);
    println!("{summary}");
    if !args.json {
        eprintln!("{}", summary::for_people(&summary));
    }
    Ok(())
}

/// `requests` requests by `concurrency` workers, each on its own connection.
async fn run(
    target: &Arc<Target>,
    args: &Args,
    requests: usize,
    concurrency: usize,
) -> anyhow::Result<Vec<Outcome>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..concurrency {
        let (target, next) = (Arc::clone(target), Arc::clone(&next));
        let (prompt_tokens, vocab) = (args.prompt_tokens, args.vocab);
        workers.spawn(async move {
            let mut connection = target.connect().await?;
            let mut outcomes = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= requests {
                    return anyhow::Ok(outcomes);
                }
                let prompt = client::prompt(index as u64, prompt_tokens, vocab);
                outcomes.push(target.complete(&mut connection, &prompt).await?);
            }
        });
    }
    let mut all = Vec::with_capacity(requests);
    while let Some(worker) = workers.join_next().await {
        all.extend(worker??);
    }
    Ok(all)
}
