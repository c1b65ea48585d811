//! tokenizer_config.json and the chat template files: what renders a conversation to text.

use serde_json::Value;

use crate::error::Result;
use crate::json::{Fields, parse_object};

pub(crate) const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";
pub(crate) const TEMPLATE_FILE: &str = "chat_template.jinja";
pub(crate) const TEMPLATE_JSON_FILE: &str = "chat_template.json";
/// The template that is used when a request names none.
const DEFAULT_NAME: &str = "default";
/// Templates that one file may hold.
const MAX_TEMPLATES: usize = 64;

/// A chat template and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    /// `default`, `tool_use`, `rag`, ...
    pub name: String,
    /// Jinja text.
    pub text: String,
}

/// Chat templates and the special tokens that they refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// In the order of the file.
    pub templates: Vec<ChatTemplate>,
    /// Text of the beginning-of-sequence token.
    pub bos_token: Option<String>,
    /// Text of the end-of-sequence token.
    pub eos_token: Option<String>,
    /// Text of the unknown token.
    pub unk_token: Option<String>,
    /// Text of the padding token.
    pub pad_token: Option<String>,
    /// Whether a text begins with the beginning-of-sequence token, if the file says so.
    pub add_bos_token: Option<bool>,
}

impl TokenizerConfig {
    /// Parses the text of tokenizer_config.json.
    ///
    /// # Errors
    /// [`crate::ModelError::Field`] for a field of the wrong type.
    pub fn parse(text: &str) -> Result<Self> {
        let map = parse_object(TOKENIZER_CONFIG_FILE, text)?;
        let fields = Fields::new(TOKENIZER_CONFIG_FILE, "", &map);
        Ok(Self {
            templates: templates(&fields)?,
            bos_token: token(&fields, "bos_token")?,
            eos_token: token(&fields, "eos_token")?,
            unk_token: token(&fields, "unk_token")?,
            pad_token: token(&fields, "pad_token")?,
            add_bos_token: fields.get("add_bos_token").and_then(Value::as_bool),
        })
    }

    /// The template of that name, or with `None` the default one (the only one, if it has another
    /// name).
    pub fn template(&self, name: Option<&str>) -> Option<&str> {
        let find = |name: &str| self.templates.iter().find(|template| template.name == name);
        let template = match (name, &self.templates[..]) {
            (Some(name), _) => find(name),
            (None, [only]) => Some(only),
            (None, _) => find(DEFAULT_NAME),
        };
        template.map(|template| template.text.as_str())
    }

    /// A template file wins over the field.
    pub(crate) fn set_default_template(&mut self, text: String) {
        self.templates.retain(|template| template.name != DEFAULT_NAME);
        self.templates.insert(0, ChatTemplate { name: DEFAULT_NAME.to_owned(), text });
    }

    /// Takes the templates of chat_template.json.
    pub(crate) fn add_template_json(&mut self, text: &str) -> Result<()> {
        let map = parse_object(TEMPLATE_JSON_FILE, text)?;
        self.templates = templates(&Fields::new(TEMPLATE_JSON_FILE, "", &map))?;
        Ok(())
    }
}

/// `chat_template`: one text, or a list of `{"name", "template"}`.
fn templates(fields: &Fields<'_>) -> Result<Vec<ChatTemplate>> {
    const FIELD: &str = "chat_template";
    let list = match fields.get(FIELD) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => {
            return Ok(vec![ChatTemplate { name: DEFAULT_NAME.to_owned(), text: text.clone() }]);
        }
        Some(Value::Array(list)) if list.len() <= MAX_TEMPLATES => list,
        Some(_) => {
            let problem =
                format!("must be a string or a list of at most {MAX_TEMPLATES} templates");
            return Err(fields.error(FIELD, problem));
        }
    };
    let one = |(i, value): (usize, &Value)| {
        let part = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        part("name")
            .zip(part("template"))
            .map(|(name, text)| ChatTemplate { name, text })
            .ok_or_else(|| {
                fields.error(&format!("{FIELD}[{i}]"), "must have the strings name and template")
            })
    };
    list.iter().enumerate().map(one).collect()
}

/// A special token: its text, or an object with the text as `content`.
fn token(fields: &Fields<'_>, name: &str) -> Result<Option<String>> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value) => match value.get("content").and_then(Value::as_str) {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(fields.error(name, "must be a string or an object with a string content")),
        },
    }
}
