//! Tokenizing a batch of prompts on threads of this process: one HF tokenizer for all, one prompt
//! at a time on each thread.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokenizers::Tokenizer;

/// What one batch took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    /// Until the last prompt was encoded.
    pub time: Duration,
    /// Of all prompts.
    pub tokens: usize,
}

/// Encodes all prompts on this many threads, which are ready when the clock starts.
///
/// # Errors
/// What the tokenizer says of a prompt.
pub(super) fn encode_all(
    tokenizer: &Tokenizer,
    prompts: &[String],
    threads: usize,
) -> anyhow::Result<Batch> {
    let (next, start) = (AtomicUsize::new(0), Barrier::new(threads + 1));
    let work = || {
        start.wait();
        let mut tokens = 0;
        // Relaxed: an index is taken once, and nothing else is shared.
        while let Some(prompt) = prompts.get(next.fetch_add(1, Ordering::Relaxed)) {
            tokens += super::count_tokens(tokenizer, prompt)?;
        }
        anyhow::Ok((Instant::now(), tokens))
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // Before the wait: this thread may be the last to be let go.
        let started = Instant::now();
        start.wait();
        let mut batch = Batch { time: Duration::ZERO, tokens: 0 };
        for worker in workers {
            let (ended, tokens) =
                worker.join().map_err(|_| anyhow::anyhow!("the tokenizer panicked"))??;
            batch.time = batch.time.max(ended - started);
            batch.tokens += tokens;
        }
        Ok(batch)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_prompts_are_encoded_once_by_any_number_of_threads() {
        let tokenizer = super::super::bundled().unwrap();
        let prompts: Vec<String> = (0..20).map(|i| format!("prompt {i} of many")).collect();
        let counts = prompts.iter().map(|p| super::super::count_tokens(&tokenizer, p).unwrap());
        let expected: usize = counts.sum();
        for threads in [1, 3, 40] {
            let batch = super::encode_all(&tokenizer, &prompts, threads).unwrap();
            assert_eq!(batch.tokens, expected, "{threads} threads");
            assert!(!batch.time.is_zero());
        }
    }
}
