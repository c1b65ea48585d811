//! What one client of each attack does, again and again.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::bodies::{self, Ask, Bodies, Draw};
use super::catalogue::{Chosen, Kind};
use super::wire::{Connection, Reading, SMALL_WINDOW_BYTES, Trouble, Way};
use super::{bombs, malformed};

/// After what failed, before the next attempt: no attack is a loop of refused connections.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Tokens of a long prompt where neither a setting nor the server says.
const LONG_PROMPT_TOKENS: usize = 4000;
/// Tokenizes a text; servers of the OpenAI API need not have it.
const TOKENIZE: &str = "/tokenize";
/// Chunks of one byte that are written together: 12 KiB.
const CHUNKS_AT_ONCE: usize = 2048;

/// What all clients of an attack share.
#[derive(Debug)]
pub(super) struct Attack {
    pub chosen: Chosen,
    pub way: Way,
    pub bodies: Bodies,
    /// Most tokens of a request, if the server lists it.
    pub limit: Option<usize>,
    /// The one large body, where the attack has one.
    large: Vec<u8>,
}

impl Attack {
    pub fn new(chosen: Chosen, way: Way, bodies: Bodies, limit: Option<usize>) -> Attack {
        let large = match chosen.kind {
            Kind::LargeBodies => large_body(&bodies.model, chosen.count("bytes")),
            _ => Vec::new(),
        };
        Attack { chosen, way, bodies, limit, large }
    }

    fn prompt_tokens(&self) -> usize {
        let output = self.chosen.count("output");
        match (self.chosen.count("prompt"), self.limit) {
            (0, Some(limit)) => (limit * 95 / 100).saturating_sub(output).max(1),
            (0, None) => LONG_PROMPT_TOKENS,
            (tokens, _) => tokens,
        }
    }

    /// The request of the attacks that send whole ones.
    fn ask(&self) -> Ask {
        let get = |name| self.chosen.get(name);
        let mut ask = Ask {
            prompt_tokens: self.prompt_tokens(),
            output_tokens: get("output"),
            logprobs: get("logprobs"),
            stream: self.chosen.kind != Kind::BeyondKv,
            ..Ask::default()
        };
        let field = match self.chosen.kind {
            Kind::Priority => Some(("priority", get("value"))),
            Kind::Slo => Some(("slo_ttft_ms", get("value"))),
            Kind::Wide | Kind::BeyondKv => Some(("n", get("n"))),
            _ => None,
        };
        ask.fields.extend(field.map(|(name, value)| (name.to_owned(), json!(value))));
        ask
    }

    fn reading(&self) -> Reading {
        match self.chosen.kind {
            Kind::Stalled => Reading::Nothing,
            Kind::Trickle => Reading::Slowly(self.chosen.get("rate").unsigned_abs()),
            Kind::Aborts => Reading::FirstEvent,
            _ => Reading::All,
        }
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(self.chosen.get("pause").unsigned_abs())
    }

    /// One attempt; the error says why it ended early.
    async fn once(&self, client: u64, turn: u64, draw: &mut Draw) -> Result<u16, Trouble> {
        let window = match self.reading() {
            Reading::Nothing | Reading::Slowly(_) => Some(SMALL_WINDOW_BYTES),
            Reading::All | Reading::FirstEvent => None,
        };
        // Counted where it failed.
        let Some(mut connection) = self.way.connect(window).await else { return Ok(0) };
        match self.chosen.kind {
            Kind::IdleConnections => idle(&mut connection).await,
            Kind::HalfHeads => self.half_head(&mut connection).await,
            Kind::OneByteChunks => self.one_byte_chunks(&mut connection).await,
            Kind::LargeBodies => {
                self.exchange(&mut connection, TOKENIZE, &self.large, Reading::All).await
            }
            Kind::Malformed => {
                malformed::one(&self.way, &self.bodies, &mut connection, client + turn).await
            }
            Kind::SchemaBombs => self.bomb(&mut connection, client + turn, draw).await,
            _ => {
                let body = self.bodies.write(&self.ask(), draw);
                let path = self.bodies.path.as_str();
                self.exchange(&mut connection, path, &body, self.reading()).await
            }
        }
    }

    /// Sends a whole request, and reads as far as the attack does.
    async fn exchange(
        &self,
        connection: &mut Connection<'_>,
        path: &str,
        body: &[u8],
        reading: Reading,
    ) -> Result<u16, Trouble> {
        let head = self.way.head(path, &format!("Content-Length: {}\r\n", body.len()));
        let written = match connection.write(head.as_bytes()).await {
            Ok(()) => connection.write(body).await,
            failed => failed,
        };
        if written.is_ok() {
            self.way.tally().sent += 1;
        }
        // A server may refuse a body before all of it was sent.
        let status = connection.status().await?;
        if status / 100 != 2 {
            connection.refusal().await;
            return Ok(status);
        }
        connection.body(reading).await?;
        self.way.tally().finished += 1;
        Ok(status)
    }

    /// Sends the schema of this turn, and counts it where it is accepted.
    async fn bomb(
        &self,
        connection: &mut Connection<'_>,
        turn: u64,
        draw: &mut Draw,
    ) -> Result<u16, Trouble> {
        let (case, format) = bombs::field(turn, draw);
        let mut ask = self.ask();
        ask.fields.insert("response_format".to_owned(), format);
        let body = self.bodies.write(&ask, draw);
        self.way.tally().case(case).sent += 1;
        let status = self.exchange(connection, &self.bodies.path, &body, Reading::All).await?;
        if status / 100 == 2 {
            self.way.tally().case(case).accepted += 1;
        }
        Ok(status)
    }

    /// Half a head, then a byte at a time, until the server answers or closes.
    async fn half_head(&self, connection: &mut Connection<'_>) -> Result<u16, Trouble> {
        let head = self.way.head(&self.bodies.path, "X-Slow: ");
        // Without the empty line that would end it.
        connection.write(head.trim_end().as_bytes()).await?;
        loop {
            if let Some(answered) = within(self.pause(), connection.status()).await {
                let status = answered?;
                connection.refusal().await;
                return Ok(status);
            }
            connection.write(b"a").await?;
        }
    }

    /// A body of chunks of one byte; then nothing, until the server answers or closes.
    async fn one_byte_chunks(&self, connection: &mut Connection<'_>) -> Result<u16, Trouble> {
        let head = self.way.head(&self.bodies.path, "Transfer-Encoding: chunked\r\n");
        connection.write(head.as_bytes()).await?;
        let start = format!(r#"{{"model":"{}","max_tokens":1,"prompt":""#, self.bodies.model);
        let count = self.chosen.count("chunks");
        let mut bytes = start.bytes().chain(std::iter::repeat(b'a')).take(count);
        loop {
            let mut block = Vec::with_capacity(6 * CHUNKS_AT_ONCE);
            for byte in bytes.by_ref().take(CHUNKS_AT_ONCE) {
                block.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
            }
            // A server that closes early may have said why.
            if block.is_empty() || connection.write(&block).await.is_err() {
                break;
            }
        }
        self.way.tally().sent += 1;
        let status = connection.status().await?;
        connection.refusal().await;
        Ok(status)
    }
}

/// A connection on which nothing is said, until the server closes it.
async fn idle(connection: &mut Connection<'_>) -> Result<u16, Trouble> {
    connection.hold().await?;
    Ok(0)
}

/// The result, if it comes in this time.
async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, work).await.ok()
}

fn large_body(model: &str, bytes: usize) -> Vec<u8> {
    let text = bodies::text(bytes, &mut Draw::new(1));
    let body = json!({"model": model, "prompt": text, "return_token_strs": true});
    body.to_string().into_bytes()
}

/// One client of an attack: until it is dropped.
pub(super) async fn client(attack: Arc<Attack>, number: u64, seed: u64) {
    let mut draw = Draw::new(seed.wrapping_add(number.wrapping_mul(0x5851_f42d_4c95_7f2d)));
    for turn in 0.. {
        let ended = attack.once(number, turn, &mut draw).await;
        {
            let mut tally = attack.way.tally();
            match ended {
                Ok(_) => {}
                Err(Trouble::Closed) => tally.closed_by_server += 1,
                Err(Trouble::TimedOut) => tally.timed_out += 1,
            }
        }
        let went_well = ended.is_ok_and(|status| status / 100 == 2);
        // What these send is meant to be refused.
        let kind = attack.chosen.kind;
        let is_quick = went_well || matches!(kind, Kind::Malformed | Kind::SchemaBombs);
        tokio::time::sleep(if is_quick { attack.pause() } else { RETRY_PAUSE }).await;
    }
}
