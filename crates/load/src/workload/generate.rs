//! Turns a workload into requests.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::LoadError;
use crate::workload::trace::{BLOCK_TOKENS, TraceEntry};
use crate::workload::{
    Lengths, Prompt, PromptForm, Request, SharedPrefix, Source, Workload, files, words,
};

/// Yields request `index` of a workload: equal seeds and indices, equal requests.
#[derive(Debug)]
pub(crate) struct Requests {
    source: Opened,
    form: PromptForm,
    exact: bool,
    seed: u64,
}

#[derive(Debug)]
enum Opened {
    Generated { input: Lengths, output: Lengths, prefix: Option<SharedPrefix> },
    Conversations { prompts: Vec<files::FilePrompt>, output: Option<Lengths> },
    Trace(Vec<TraceEntry>),
    List(Vec<Request>),
}

impl Requests {
    pub(crate) fn open(workload: &Workload, seed: u64) -> Result<Requests, LoadError> {
        let longest = workload.max_prompt_tokens;
        let source = match &workload.source {
            Source::Generated { input, output, prefix } => {
                Opened::Generated { input: *input, output: *output, prefix: *prefix }
            }
            Source::ShareGpt { path, output } => Opened::Conversations {
                prompts: files::share_gpt(path, longest, output.is_some(), seed)?,
                output: *output,
            },
            Source::JsonLines { path, output } => Opened::Conversations {
                prompts: files::json_lines(path, longest, seed)?,
                output: Some(*output),
            },
            Source::Trace { entries } => Opened::Trace(entries.clone()),
            Source::List { requests } => Opened::List(requests.clone()),
        };
        Ok(Requests { source, form: workload.form, exact: workload.exact, seed })
    }

    /// Request `index`; files, traces and lists begin again after their end.
    pub(crate) fn request(&self, index: u64) -> Request {
        let mut rng = stream(self.seed, REQUESTS, index);
        let at = |len: usize| (index % len as u64) as usize;
        match &self.source {
            Opened::List(requests) => requests[at(requests.len())].clone(),
            Opened::Conversations { prompts, output } => {
                let chosen = &prompts[at(prompts.len())];
                let drawn = output.map(|lengths| lengths.sample(&mut rng));
                let max_tokens = chosen.output_tokens.or(drawn).unwrap_or(1);
                Request { prompt: chosen.prompt.clone(), max_tokens, exact: self.exact }
            }
            Opened::Trace(entries) => {
                let entry = &entries[at(entries.len())];
                let mut draft = Draft::new(self.form);
                let whole = (entry.input_tokens / BLOCK_TOKENS) as usize;
                for name in entry.blocks.iter().take(whole) {
                    draft.extend(BLOCK_TOKENS, &mut stream(self.seed, BLOCKS, *name));
                }
                draft.extend(entry.input_tokens - draft.tokens, &mut rng);
                self.finish(draft, entry.output_tokens)
            }
            Opened::Generated { input, output, prefix } => {
                let (input, output) = (input.sample(&mut rng), output.sample(&mut rng));
                let mut draft = Draft::new(self.form);
                if let Some(prefix) = prefix
                    && rng.random::<f64>() < prefix.share
                {
                    let group = u64::from(rng.random_range(0..prefix.groups));
                    draft.extend(prefix.tokens, &mut stream(self.seed, PREFIXES, group));
                }
                draft.extend(input, &mut rng);
                self.finish(draft, output)
            }
        }
    }

    fn finish(&self, draft: Draft, max_tokens: u32) -> Request {
        Request { prompt: draft.prompt, max_tokens, exact: self.exact }
    }
}

/// A prompt that grows by parts from different random streams.
struct Draft {
    prompt: Prompt,
    vocab: u32,
    tokens: u32,
}

impl Draft {
    fn new(form: PromptForm) -> Draft {
        let (prompt, vocab) = match form {
            PromptForm::Text => (Prompt::Text(String::new()), 0),
            PromptForm::Ids { vocab } => (Prompt::Ids(Vec::new()), vocab),
        };
        Draft { prompt, vocab, tokens: 0 }
    }

    fn extend(&mut self, count: u32, rng: &mut Pcg64) {
        self.tokens += count;
        match &mut self.prompt {
            Prompt::Text(text) => words::append(text, count, rng),
            Prompt::Ids(ids) => ids.extend((0..count).map(|_| rng.random_range(0..self.vocab))),
            Prompt::Messages(_) => {}
        }
    }
}

/// Kinds of random streams: no two of them give the same numbers.
const REQUESTS: u64 = 1;
const PREFIXES: u64 = 2;
const BLOCKS: u64 = 3;

fn stream(seed: u64, kind: u64, index: u64) -> Pcg64 {
    Pcg64::seed_from_u64(mix(mix(mix(seed) ^ kind) ^ index))
}

/// The finaliser of splitmix64.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(workload: &Workload, seed: u64, index: u64) -> Vec<u32> {
        match workload.open(seed).expect("no file").request(index).prompt {
            Prompt::Ids(ids) => ids,
            other => panic!("{other:?} are no ids"),
        }
    }

    #[test]
    fn equal_blocks_of_a_trace_are_equal_tokens() {
        let entry = |blocks: [u64; 2]| TraceEntry {
            input_tokens: 2 * BLOCK_TOKENS + 3,
            output_tokens: 1,
            blocks: blocks.into(),
        };
        let entries = vec![entry([1, 2]), entry([1, 3]), entry([1, 2])];
        let workload = Workload::of(Source::Trace { entries }).with_ids(1000);
        let [a, b, c] = [0, 1, 2].map(|index| ids(&workload, 7, index));
        let block = BLOCK_TOKENS as usize;
        assert_eq!(a[..block], b[..block]);
        assert_ne!(a[block..2 * block], b[block..2 * block]);
        assert_eq!(a[..2 * block], c[..2 * block]);
        assert_ne!(a[2 * block..], c[2 * block..], "what no block names is the request's own");
    }

    #[test]
    fn a_shared_prefix_is_shared_and_the_rest_is_not() {
        let prefix = SharedPrefix { tokens: 20, share: 1.0, groups: 1 };
        let tokens = |tokens| Lengths::Fixed { tokens };
        let (input, output) = (tokens(10), tokens(1));
        let source = Source::Generated { input, output, prefix: Some(prefix) };
        let workload = Workload::of(source).with_ids(1000);
        let (a, b) = (ids(&workload, 7, 0), ids(&workload, 7, 1));
        assert_eq!((a.len(), &a[..20]), (30, &b[..20]));
        assert_ne!(a[20..], b[20..]);
        assert_ne!(a[..20], ids(&workload, 8, 0)[..20], "another seed, another prefix");
    }

    #[test]
    fn text_has_as_many_words_as_tokens() {
        let workload = Workload::fixed(37, 1);
        let request = workload.open(1).expect("no file").request(4);
        let Prompt::Text(text) = request.prompt else { panic!("not text") };
        assert_eq!(text.split(' ').count(), 37);
    }
}
