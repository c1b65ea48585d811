//! `POST /tokenize` and `POST /detokenize`

use std::ops::Range;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::pieces::{PIECE_TOKENS, in_pieces, push_escaped, push_ids, push_quoted};
use crate::api_error::ApiError;
use crate::http::app::App;
use crate::http::read_body;
use crate::serving::{ModelAssets, PromptSource, encode, pool_error};
use crate::text::detokenize::Detokenizer;
use crate::text::tokenizer::EncodeParams;
use crate::validate::{DetokenizeRequest, Fields, Prompt, TokenizeInput, TokenizeRequest};

/// Exactly the ids that a completion of the same text or conversation would use.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let in_flight = app.lifecycle.enter()?;
    let max_model_len = app.model_limits()?.max_model_len;
    let body = read_body(&app, request).await?;
    let (asked, mut charge) = body.fields(&app, TokenizeRequest::read).await?;
    app.named_model(asked.model.as_deref())?;
    let source = match asked.input {
        TokenizeInput::Text(text) => PromptSource::Completion(Prompt::Text(text)),
        TokenizeInput::Chat(chat) => PromptSource::Chat(chat),
    };
    let assets = app.serving.assets.clone();
    let pool = app.serving.lanes.of(source.text_bytes());
    let crew = pool.crew();
    let add_special_tokens = asked.add_special_tokens;
    let job = move || {
        let params = EncodeParams { add_special_tokens, cache_salt: 0, crew: &crew };
        encode(&assets, source, params).map(|(tokens, _)| tokens)
    };
    let tokens = pool.run(job).await.map_err(pool_error)??;
    charge.cover(&app.memory, size_of_val(tokens.as_slice()))?;
    let tokenized = Tokenized {
        max_model_len,
        tokens,
        strings_of: asked.return_token_strs.then(|| app.serving.assets.clone()),
        part: Part::Head,
    };
    Ok(in_pieces(tokenized, app.serving.lanes.long(), charge, in_flight))
}

/// The text of ids.
pub async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let in_flight = app.lifecycle.enter()?;
    let limits = app.model_limits()?;
    let body = read_body(&app, request).await?;
    let read = move |fields: &Fields| DetokenizeRequest::read(fields, limits);
    let (asked, mut charge) = body.fields(&app, read).await?;
    app.named_model(asked.model.as_deref())?;
    charge.cover(&app.memory, size_of_val(asked.tokens.as_slice()))?;
    let vocab = app.serving.assets.tokenizer.vocab().clone();
    let detokenizer = Detokenizer::at_start(vocab, false);
    let detokenized = Detokenized { tokens: asked.tokens, detokenizer, next: None };
    Ok(in_pieces(detokenized, app.serving.lanes.long(), charge, in_flight))
}

/// The answer of `/tokenize`, piece by piece.
struct Tokenized {
    max_model_len: u32,
    tokens: Vec<u32>,
    /// Whose strings the tokens are, if they were asked for.
    strings_of: Option<Arc<ModelAssets>>,
    part: Part,
}

/// What comes next.
enum Part {
    Head,
    /// Ids from this one on.
    Ids(usize),
    /// Strings of the tokens from this one on.
    Strings(usize),
    Over,
}

impl Tokenized {
    /// The tokens of the piece that begins at token `from`.
    fn piece(&self, from: usize) -> Range<usize> {
        from..self.tokens.len().min(from + PIECE_TOKENS)
    }

    /// Adds the strings of the piece's tokens.
    fn strings(&self, assets: &ModelAssets, piece: Range<usize>, json: &mut String) {
        let strings = assets.tokenizer.token_strs(&self.tokens[piece.clone()]);
        for (i, string) in piece.zip(&strings) {
            json.push_str(if i == 0 { "" } else { "," });
            push_quoted(string, json);
        }
    }

    /// What comes behind the last id.
    fn end_ids(&mut self, json: &mut String) {
        json.push_str("],\"token_strs\":");
        self.part = if self.strings_of.is_some() {
            json.push('[');
            Part::Strings(0)
        } else {
            json.push_str("null}");
            Part::Over
        };
    }
}

impl Iterator for Tokenized {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut json = String::new();
        if matches!(self.part, Part::Head) {
            let (count, longest) = (self.tokens.len(), self.max_model_len);
            json = format!("{{\"count\":{count},\"max_model_len\":{longest},\"tokens\":[");
            self.part = Part::Ids(0);
        }
        if let Part::Ids(from) = self.part {
            let piece = self.piece(from);
            self.part = Part::Ids(piece.end);
            push_ids(&self.tokens[piece.clone()], from, &mut json);
            if piece.end < self.tokens.len() {
                return Some(json);
            }
            self.end_ids(&mut json);
        }
        if let Part::Strings(from) = self.part
            && let Some(assets) = &self.strings_of
        {
            let piece = self.piece(from);
            self.strings(assets, piece.clone(), &mut json);
            self.part = Part::Strings(piece.end);
            if piece.end == self.tokens.len() {
                json.push_str("]}");
                self.part = Part::Over;
            }
        }
        (!json.is_empty()).then_some(json)
    }
}

/// The answer of `/detokenize`, piece by piece.
struct Detokenized {
    tokens: Vec<u32>,
    detokenizer: Detokenizer,
    /// Token that comes next; `None` before the first piece.
    next: Option<usize>,
}

impl Iterator for Detokenized {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let from = self.next.unwrap_or(0);
        if self.next.is_some() && from >= self.tokens.len() {
            return None;
        }
        let to = self.tokens.len().min(from + PIECE_TOKENS);
        let mut text = String::new();
        for &id in &self.tokens[from..to] {
            self.detokenizer.push(id, &mut text);
        }
        let last = to == self.tokens.len();
        if last {
            self.detokenizer.finish(&mut text);
        }
        let mut json = String::from(if self.next.is_none() { "{\"prompt\":\"" } else { "" });
        push_escaped(&text, &mut json);
        json.push_str(if last { "\"}" } else { "" });
        self.next = Some(to);
        Some(json)
    }
}
