//! One choice of one request: its tokens become text, up to a stop string or its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use saccade_parsers::{AnswerParser, Event};
use saccade_ring::Finish;

use super::answers::AnswerSettings;
use crate::api_error::ApiError;
use crate::limits::MAX_STOP_IDS;
use crate::metrics::Metrics;
use crate::ring::{End, Flight, Token};
use crate::text::detokenize::Detokenizer;
use crate::text::stop::{Scan, StopMatcher};
use crate::text::vocab::Vocab;

/// Why a choice ended well.
#[derive(Debug, Clone, PartialEq)]
pub enum FinishReason {
    /// A stop string, by its index in the request.
    StopString(usize),
    /// One of the request's stop token ids.
    StopToken(u32),
    /// The model ended its sequence.
    Eos,
    /// The answer has all tool calls that it may have.
    Calls,
    /// The limit of tokens.
    Length,
}

impl FinishReason {
    /// The OpenAI API's name for it.
    pub fn as_str(&self) -> &'static str {
        if *self == FinishReason::Length { "length" } else { "stop" }
    }
}

/// A token with its logprobs, for the formats to render.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// Token id.
    pub id: u32,
    /// `None` for the first prompt token, which nothing precedes.
    pub logprob: Option<f32>,
    /// Alternatives, best first.
    pub top: Box<[(u32, f32)]>,
}

impl TokenLogprobs {
    /// The best `count` alternatives, best first.
    pub fn best(&self, count: usize) -> impl Iterator<Item = (u32, f32)> {
        self.top.iter().take(count).copied()
    }
}

/// What one step of a choice adds.
#[derive(Debug, Default)]
pub struct Delta {
    /// New text; may be empty while a character or a stop string is undecided.
    pub text: String,
    /// The same taken apart, in place of `text`, if the answer is.
    pub parts: Vec<Event>,
    /// Logprobs of the prompt's tokens but the first, in the first delta, if asked for.
    pub prompt: Vec<TokenLogprobs>,
    /// Logprobs of the tokens of this delta, if asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// Ids of the tokens of this delta, if asked for.
    pub ids: Vec<u32>,
    /// Set on the last delta.
    pub finish: Option<FinishReason>,
}

/// What a choice must know about its request.
pub struct ChoiceSettings {
    /// Pieces of the tokens.
    pub vocab: Arc<Vocab>,
    /// Special tokens leave no text.
    pub skip_special: bool,
    /// How the answer is taken apart; `None`: it is text.
    pub answer: Option<AnswerSettings>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// The stop string or token stays in the text.
    pub include_stop: bool,
    /// Stop strings are ignored before this many tokens.
    pub min_tokens: u32,
    /// Ids that end the sequence: the request's first, then `num_eos` of the model's.
    pub stop_ids: Vec<u32>,
    /// The model's ids at the end of `stop_ids`.
    pub num_eos: usize,
    /// Logprobs were asked for.
    pub logprobs: bool,
    /// Token ids were.
    pub token_ids: bool,
    /// Tokens that the client wants; 0 only scores the prompt.
    pub max_tokens: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Records that come before the first token: all prompt tokens but the first.
    pub prompt_records: u32,
    /// When the request came.
    pub arrived: Instant,
    /// Where its times are counted.
    pub metrics: Arc<Metrics>,
}

/// A choice in flight.
pub struct Choice {
    settings: Arc<ChoiceSettings>,
    flight: Option<Flight>,
    inbox: VecDeque<Token>,
    end: Option<End>,
    detokenizer: Detokenizer,
    stop: StopMatcher,
    parser: Option<AnswerParser>,
    /// Tokens between the markers of the reasoning.
    reasoning_tokens: u32,
    prompt_left: u32,
    /// The prompt has been counted.
    prompted: bool,
    prompt: Vec<TokenLogprobs>,
    produced: u32,
    /// A token that may have ended the sequence: its text waits for what comes next.
    ending: Option<Token>,
    /// When the first and the last token were found.
    times: Option<(Instant, Instant)>,
    admitted: Option<Instant>,
    cached: u32,
    /// Time spent on text.
    spent: Duration,
}

impl Choice {
    /// Prompt tokens that were not computed; 0 before the first token.
    pub fn cached(&self) -> u32 {
        self.cached
    }

    /// Takes over a submitted request.
    pub fn new(settings: Arc<ChoiceSettings>, flight: Flight) -> Self {
        debug_assert!(settings.stop_ids.len() <= MAX_STOP_IDS + settings.num_eos);
        let answer = settings.answer.as_ref();
        let markers = answer.map(|answer| answer.markers.clone()).unwrap_or_default();
        Self {
            detokenizer: Detokenizer::after_prompt(settings.vocab.clone(), settings.skip_special)
                .keeping(markers),
            parser: settings.answer.as_ref().map(|answer| AnswerParser::new(&answer.parser)),
            reasoning_tokens: 0,
            stop: StopMatcher::new(settings.stop.clone(), settings.include_stop),
            prompt_left: settings.prompt_records,
            prompted: false,
            prompt: Vec::new(),
            settings,
            flight: Some(flight),
            inbox: VecDeque::new(),
            end: None,
            produced: 0,
            ending: None,
            times: None,
            admitted: None,
            cached: 0,
            spent: Duration::ZERO,
        }
    }

    /// Tokens of reasoning among those produced; `None` if reasoning is not looked for.
    pub fn reasoning_tokens(&self) -> Option<u32> {
        let answer = self.settings.answer.as_ref()?;
        answer.parser.reasoning.map(|_| self.reasoning_tokens)
    }

    /// Tokens produced for the client.
    pub fn produced(&self) -> u32 {
        self.produced
    }

    /// When the first and the last token were found.
    pub fn times(&self) -> Option<(Instant, Instant)> {
        self.times
    }

    /// When the device took it from the queue.
    pub fn admitted(&self) -> Option<Instant> {
        self.admitted
    }

    /// Time spent on text.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        self.flight.is_none()
    }

    /// The next delta; not to be called when it is over.
    ///
    /// # Errors
    /// When the request ended without an answer; the choice is over then.
    pub fn poll_delta(&mut self, cx: &mut Context<'_>) -> Poll<Result<Delta, ApiError>> {
        loop {
            if let Some(token) = self.inbox.pop_front() {
                let begun = Instant::now();
                let said = self.take(token);
                self.spent += begun.elapsed();
                match said {
                    Some(delta) => return Poll::Ready(Ok(self.with_end(delta))),
                    None => continue,
                }
            }
            if let Some(end) = self.end {
                return Poll::Ready(self.finish(end));
            }
            let Some(flight) = &self.flight else { return Poll::Pending };
            self.end = ready!(flight.poll_drain(&mut self.inbox, cx));
            self.admitted = flight.mailbox().admitted();
            self.cached = flight.mailbox().cached();
        }
    }

    /// The end goes into the last token's delta if both are there, as clients that count deltas
    /// expect. A failure is left for the next poll.
    fn with_end(&mut self, mut delta: Delta) -> Delta {
        let well = [Finish::Stop, Finish::Length].map(|finish| Some(End::Finished(finish)));
        if delta.finish.is_some() || !self.inbox.is_empty() || !well.contains(&self.end) {
            return delta;
        }
        let Some(Ok(mut last)) = self.end.map(|end| self.finish(end)) else { return delta };
        delta.text.push_str(&last.text);
        delta.parts.append(&mut last.parts);
        delta.logprobs.append(&mut last.logprobs);
        delta.ids.append(&mut last.ids);
        delta.finish = last.finish;
        delta
    }

    /// Handles one record; `None` if it adds no output.
    fn take(&mut self, token: Token) -> Option<Delta> {
        if !std::mem::replace(&mut self.prompted, true) {
            self.settings.metrics.prompted(self.settings.prompt_tokens);
        }
        if self.prompt_left > 0 {
            self.prompt_left -= 1;
            self.prompt.push(logprobs_of(token));
            return None;
        }
        if self.settings.max_tokens == 0 {
            return None;
        }
        self.note_time(token.at);
        // What did not end the sequence after all (before min_tokens) is text like any other.
        let waited = self.ending.take();
        let spoken = if self.settings.stop_ids.contains(&token.id) {
            self.ending = Some(token);
            None
        } else {
            Some(token)
        };
        if waited.is_none() && spoken.is_none() {
            return None;
        }
        let mut delta = self.delta();
        for token in waited.into_iter().chain(spoken) {
            if delta.finish.is_none() {
                self.say(token, &mut delta);
            }
        }
        Some(delta)
    }

    /// Counts a token, and notes what was asked for beside its text.
    fn note(&mut self, token: Token, delta: &mut Delta) {
        self.produced += 1;
        self.settings.metrics.produced();
        if self.settings.token_ids {
            delta.ids.push(token.id);
        }
        if self.settings.logprobs {
            delta.logprobs.push(logprobs_of(token));
        }
    }

    fn note_time(&mut self, at: Instant) {
        let metrics = &self.settings.metrics;
        match self.times {
            None => metrics.first_token(at - self.settings.arrived),
            Some((_, last)) => metrics.next_token(at - last),
        }
        self.times = Some((self.times.map_or(at, |(first, _)| first), at));
    }

    /// A delta with the prompt's logprobs, if they have not been handed out yet.
    fn delta(&mut self) -> Delta {
        Delta { prompt: std::mem::take(&mut self.prompt), ..Delta::default() }
    }

    /// Adds a token's text; a stop string ends the choice and frees its slot at once.
    fn say(&mut self, token: Token, delta: &mut Delta) {
        let was_reasoning = self.is_reasoning();
        let mut text = String::new();
        self.detokenizer.push(token.id, &mut text);
        self.note(token, delta);
        if self.produced < self.settings.min_tokens {
            self.stop.pass(&text, &mut delta.text);
        } else if let Scan::Stopped(index) = self.stop.push(&text, &mut delta.text) {
            delta.finish = Some(FinishReason::StopString(index));
            self.flight = None;
        }
        self.parse(delta);
        self.reasoning_tokens += u32::from(was_reasoning && self.is_reasoning());
    }

    fn is_reasoning(&self) -> bool {
        self.parser.as_ref().is_some_and(AnswerParser::is_reasoning)
    }

    /// Takes the delta's text apart, to its end if the delta is the last one. An answer that has
    /// all its calls ends, and frees its slot at once.
    fn parse(&mut self, delta: &mut Delta) {
        let Some(parser) = &mut self.parser else { return };
        delta.parts.append(&mut parser.push(&std::mem::take(&mut delta.text)));
        let may_end = self.produced >= self.settings.min_tokens && delta.finish.is_none();
        if parser.is_done() && may_end {
            delta.finish = Some(FinishReason::Calls);
            self.flight = None;
        }
        if delta.finish.is_some() {
            delta.parts.append(&mut parser.finish());
        }
    }

    /// The last delta, from what was held back and how the device ended it.
    fn finish(&mut self, end: End) -> Result<Delta, ApiError> {
        let finish = let_go(end, self.flight.take())?;
        let mut delta = self.delta();
        let ending = self.ending.take();
        let stopped_by = ending.as_ref().map(|t| t.id).filter(|_| finish == Finish::Stop);
        if let Some(token) = ending {
            self.say_ending(token, finish, &mut delta);
        }
        let reason = match finish {
            _ if self.settings.max_tokens == 0 => FinishReason::Length,
            Finish::Stop => self.stop_reason(stopped_by),
            Finish::Length => FinishReason::Length,
            other => return Err(no_answer(other)),
        };
        if delta.finish.is_none() {
            let mut rest = String::new();
            self.detokenizer.finish(&mut rest);
            if let Scan::Stopped(index) = self.stop.push(&rest, &mut delta.text) {
                delta.finish = Some(FinishReason::StopString(index));
            } else {
                self.stop.finish(&mut delta.text);
                delta.finish = Some(reason);
            }
            self.parse(&mut delta);
        }
        Ok(delta)
    }

    /// The token that ended the sequence counts, but is text only if the request wants it.
    fn say_ending(&mut self, token: Token, finish: Finish, delta: &mut Delta) {
        if finish != Finish::Stop || self.settings.include_stop {
            return self.say(token, delta);
        }
        self.note(token, delta);
    }

    fn stop_reason(&self, id: Option<u32>) -> FinishReason {
        let own = self.settings.stop_ids.len() - self.settings.num_eos;
        match id {
            Some(id) if self.settings.stop_ids[..own].contains(&id) => FinishReason::StopToken(id),
            _ => FinishReason::Eos,
        }
    }
}

/// Lets go of a request that has ended, and says how the device ended it.
///
/// # Errors
/// If the device did not end it, or ended it because this frontend stood still.
pub(super) fn let_go(end: End, mut flight: Option<Flight>) -> Result<Finish, ApiError> {
    if let Some(flight) = &mut flight
        && matches!(end, End::Finished(_) | End::Lost)
    {
        flight.ended();
    }
    let given_up = matches!(end, End::Finished(Finish::Cancelled) | End::Lost)
        && flight.as_ref().is_some_and(Flight::was_given_up);
    match end {
        _ if given_up => Err(ApiError::frontend_stalled()),
        End::Lost => Err(ApiError::device_lost()),
        End::Stopping => Err(ApiError::shutting_down()),
        End::Finished(finish) => Ok(finish),
    }
}

/// Why a request that ended in this way has no answer.
pub(super) fn no_answer(finish: Finish) -> ApiError {
    match finish {
        Finish::Invalid => ApiError::internal("the device refused this request as out of bounds"),
        Finish::Error => ApiError::internal("the model's step failed"),
        // Not by us: a request that is cancelled here is dropped.
        Finish::Cancelled | Finish::Stop | Finish::Length => ApiError::frontend_stalled(),
    }
}

fn logprobs_of(token: Token) -> TokenLogprobs {
    TokenLogprobs { id: token.id, logprob: Some(token.logprob), top: token.top }
}
