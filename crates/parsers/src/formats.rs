//! The formats by name, and how a model's chat template tells which one it is.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::parser::Machine;
use crate::schema::Schemas;
use crate::{array, bare, deepseek, held, pythonic, tagged, xml};

/// Where the calls of an answer are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Calls {
    /// Where the model puts them, in its own format, between text.
    Format(ToolFormat),
    /// The answer is a JSON array of `{"name": …, "parameters": {…}}`: a grammar holds it to that.
    List,
    /// The answer is the arguments of a call of this function, likewise.
    ArgumentsOf(String),
}

impl Calls {
    pub(crate) fn machine(&self, schemas: &Arc<Schemas>) -> Box<dyn Machine> {
        match self {
            Self::Format(format) => format.machine(schemas),
            Self::List => Box::new(array::Array::whole()),
            Self::ArgumentsOf(name) => Box::new(held::Arguments::of(name)),
        }
    }
}

/// How a model writes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`
    Hermes,
    /// `{"name": …, "parameters": {…}}`
    Llama3Json,
    /// `[f(a=1)]`
    Pythonic,
    /// `[TOOL_CALLS]…`
    Mistral,
    /// `<tool_call><function=f><parameter=a>…`
    Qwen3Coder,
    /// `<｜tool▁calls▁begin｜>…`
    DeepSeekV3,
    /// `functools[…]`
    Phi4Mini,
}

/// Names, as in vLLM and, for `qwen_xml_parameter`, in structural tags; the first of each format is
/// the one that is shown.
const TOOL_NAMES: &[(ToolFormat, &[&str])] = &[
    (ToolFormat::Hermes, &["hermes", "qwen3"]),
    (ToolFormat::Llama3Json, &["llama3_json", "llama4_json"]),
    (ToolFormat::Pythonic, &["pythonic", "llama4_pythonic"]),
    (ToolFormat::Mistral, &["mistral"]),
    (ToolFormat::Qwen3Coder, &["qwen3_coder", "qwen3_xml", "qwen_xml_parameter"]),
    (ToolFormat::DeepSeekV3, &["deepseek_v3", "deepseek_v31"]),
    (ToolFormat::Phi4Mini, &["phi4_mini_json"]),
];

impl ToolFormat {
    /// The names that [`from_str`](Self::from_str) takes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TOOL_NAMES.iter().flat_map(|(_, names)| names.iter().copied())
    }

    /// The format that a chat template teaches, if it is one of these.
    pub fn of_template(template: &str) -> Option<Self> {
        let has = |text| template.contains(text);
        // The more special ones first: Qwen3-Coder's template has `<tool_call>` too.
        let rules = [
            (Self::DeepSeekV3, has(deepseek::MARKERS[0])),
            (Self::Mistral, has(array::MISTRAL[0])),
            (Self::Qwen3Coder, has("<function=") && has("<parameter=")),
            (Self::Hermes, has("<tool_call>") && has("arguments")),
            (Self::Phi4Mini, has("functools[")),
            (Self::Pythonic, has("func_name1(params_name1=")),
            (Self::Llama3Json, has("<|start_header_id|>") && has("parameters")),
        ];
        rules.into_iter().find_map(|(format, fits)| fits.then_some(format))
    }

    /// Texts that must reach the parser, be they special tokens or not.
    pub fn markers(self) -> impl Iterator<Item = &'static str> {
        let (first, second): (&[&str], &[&str]) = match self {
            Self::Hermes => (tagged::MARKERS, &[]),
            Self::Llama3Json => (bare::MARKERS, &[]),
            Self::Pythonic => (pythonic::MARKERS, &[]),
            Self::Mistral => (array::MISTRAL, array::MISTRAL_PARTS),
            Self::Qwen3Coder => (xml::MARKERS, &[]),
            Self::DeepSeekV3 => (deepseek::MARKERS, &[]),
            Self::Phi4Mini => (array::PHI, &[]),
        };
        first.iter().chain(second).copied()
    }

    /// The markers around a call that is a JSON object of `name` and `arguments`, if that is the
    /// format.
    pub fn json_markers(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Hermes => Some((tagged::MARKERS[0], tagged::MARKERS[1])),
            _ => None,
        }
    }

    pub(crate) fn machine(self, schemas: &Arc<Schemas>) -> Box<dyn Machine> {
        match self {
            Self::Hermes => Box::<tagged::Tagged>::default(),
            Self::Llama3Json => Box::<bare::Bare>::default(),
            Self::Pythonic => Box::<pythonic::Pythonic>::default(),
            Self::Mistral => Box::new(array::Array::mistral()),
            Self::Qwen3Coder => Box::new(xml::Xml::new(schemas.clone())),
            Self::DeepSeekV3 => Box::<deepseek::DeepSeek>::default(),
            Self::Phi4Mini => Box::new(array::Array::phi()),
        }
    }
}

impl fmt::Display for ToolFormat {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(name_of(*self, TOOL_NAMES))
    }
}

impl FromStr for ToolFormat {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        by_name(name, TOOL_NAMES)
    }
}

/// How a model marks its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// `<think>…</think>`, open from the beginning only if the prompt has opened it.
    Think,
    /// `<think>…</think>`, always open from the beginning.
    ThinkFirst,
    /// `[THINK]…[/THINK]`
    Mistral,
}

const REASONING_NAMES: &[(ReasoningFormat, &[&str])] = &[
    (ReasoningFormat::Think, &["qwen3", "deepseek_v3", "glm45"]),
    (ReasoningFormat::ThinkFirst, &["deepseek_r1"]),
    (ReasoningFormat::Mistral, &["mistral"]),
];

impl ReasoningFormat {
    /// The names that [`from_str`](Self::from_str) takes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        REASONING_NAMES.iter().flat_map(|(_, names)| names.iter().copied())
    }

    /// The format that a chat template knows, if it is one of these.
    pub fn of_template(template: &str) -> Option<Self> {
        let formats = [Self::Think, Self::Mistral];
        formats.into_iter().find(|format| template.contains(format.markers()[1]))
    }

    /// The opening and the closing marker.
    pub fn markers(self) -> &'static [&'static str] {
        match self {
            Self::Think | Self::ThinkFirst => &["<think>", "</think>"],
            Self::Mistral => &["[THINK]", "[/THINK]"],
        }
    }

    /// Whether an answer behind this prompt begins within the reasoning.
    pub fn begins_inside(self, prompt: &str) -> bool {
        self == Self::ThinkFirst || prompt.trim_end().ends_with(self.markers()[0])
    }

    /// The same where the answer goes on with `text` instead.
    pub fn is_open_after(self, text: &str) -> bool {
        let [open, close] = [0, 1].map(|i| text.rfind(self.markers()[i]));
        match (open, close) {
            (Some(open), close) => close.is_none_or(|close| open > close),
            (None, Some(_)) => false,
            (None, None) => self == Self::ThinkFirst,
        }
    }
}

impl fmt::Display for ReasoningFormat {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(name_of(*self, REASONING_NAMES))
    }
}

impl FromStr for ReasoningFormat {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        by_name(name, REASONING_NAMES)
    }
}

type Names<T> = [(T, &'static [&'static str])];

fn name_of<T: PartialEq>(format: T, all: &Names<T>) -> &'static str {
    let found = all.iter().find(|(of, _)| *of == format);
    found.and_then(|(_, names)| names.first()).copied().unwrap_or_default()
}

fn by_name<T: Copy>(name: &str, all: &Names<T>) -> Result<T, String> {
    let found = all.iter().find(|(_, names)| names.contains(&name));
    found.map(|(format, _)| *format).ok_or_else(|| {
        let names: Vec<&str> = all.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        format!("must be auto, none, or one of {}", names.join(", "))
    })
}
