//! Flags of LoRA adapters, named as vLLM's.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use saccade_frontend::{Adapter, check_adapters};
use serde::Deserialize;

use super::{DeviceName, ServeArgs};
use crate::model_source;

/// Ranks that vLLM's flag takes.
const RANKS: [u32; 9] = [1, 8, 16, 32, 64, 128, 256, 320, 512];

/// Adapters that are loaded beside the model, as given and consistent.
#[derive(Debug, Clone)]
pub(crate) struct LoraArgs {
    /// In the order of the flags, which is the device's.
    pub lora_modules: Vec<LoraModule>,
    /// Bound on adapters in memory.
    pub max_loras: Option<u32>,
    /// Bound on the rank of each.
    #[cfg_attr(not(feature = "device"), allow(dead_code, reason = "a device loads adapters"))]
    pub max_lora_rank: u32,
}

/// An adapter, and the name that requests use.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoraModule {
    pub name: String,
    pub path: String,
    /// What `/v1/models` shows as its parent.
    #[serde(default)]
    pub base_model_name: Option<String>,
}

/// The flags as they are typed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "LoRA adapters")]
struct LoraFlags {
    /// Serve LoRA adapters; --lora-modules says so too
    #[arg(long, env = "SACCADE_ENABLE_LORA")]
    enable_lora: bool,
    /// Adapters beside the model, each a folder as PEFT writes it, and a name that requests give as
    /// their `model`: NAME=PATH, several of them, or JSON objects {"name": …, "path": …,
    /// "base_model_name": …}
    #[arg(long, value_name = "NAME=PATH", num_args = 1.., value_parser = modules, env = "SACCADE_LORA_MODULES")]
    lora_modules: Vec<Modules>,
    /// Most adapters in memory; more in --lora-modules are an error [default: as many as there are]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), env = "SACCADE_MAX_LORAS")]
    max_loras: Option<u32>,
    /// Largest rank of an adapter: 1, 8, 16, 32, 64, 128, 256, 320 or 512
    #[arg(long, value_name = "RANK", default_value = "16", value_parser = rank, env = "SACCADE_MAX_LORA_RANK")]
    max_lora_rank: u32,
}

/// The adapters of one word, or of the environment's variable.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Modules(Vec<LoraModule>);

impl Args for LoraArgs {
    fn augment_args(command: Command) -> Command {
        LoraFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        LoraFlags::augment_args_for_update(command)
    }
}

impl FromArgMatches for LoraArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let flags = LoraFlags::from_arg_matches(matches)?;
        let refused = |message| Error::raw(ErrorKind::ValueValidation, message);
        LoraArgs::of(flags).map_err(refused)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl LoraArgs {
    fn of(flags: LoraFlags) -> Result<Self, String> {
        let modules: Vec<LoraModule> = flags.lora_modules.into_iter().flat_map(|m| m.0).collect();
        if flags.enable_lora && modules.is_empty() {
            return Err(
                "--enable-lora: --lora-modules names no adapter, and none is loaded after \
                        the start"
                    .into(),
            );
        }
        if let Some(most) = flags.max_loras.filter(|most| modules.len() > *most as usize) {
            let count = modules.len();
            return Err(format!(
                "--lora-modules names {count} adapters, and --max-loras is {most}: all of them are \
                 in memory from the start"
            ));
        }
        Ok(Self {
            lora_modules: modules,
            max_loras: flags.max_loras,
            max_lora_rank: flags.max_lora_rank,
        })
    }

    /// Whether adapters are served: `--lora-modules` alone says so.
    pub fn serves_adapters(&self) -> bool {
        !self.lora_modules.is_empty()
    }

    /// Names and bound, for the person who starts the server; `None` without adapters.
    #[cfg(feature = "device")]
    pub fn describe(&self) -> Option<String> {
        let names: Vec<&str> = self.lora_modules.iter().map(|module| &*module.name).collect();
        let bound = self.max_lora_rank;
        self.serves_adapters().then(|| format!("{}; of rank {bound} at most", names.join(", ")))
    }

    /// As a frontend is told of them.
    pub fn adapters(&self) -> Vec<Adapter> {
        let adapter = |module: &LoraModule| Adapter {
            name: module.name.clone(),
            path: module.path.clone(),
            base_model: module.base_model_name.clone(),
        };
        self.lora_modules.iter().map(adapter).collect()
    }
}

/// Refuses adapters that could not be named, and devices that would answer without them.
pub(crate) fn check(args: &ServeArgs) -> anyhow::Result<()> {
    if !args.lora.serves_adapters() {
        return Ok(());
    }
    check_adapters(&model_source::served_names(&args.model), &args.lora.adapters())
        .map_err(|reason| anyhow::anyhow!("--lora-modules: {reason}"))?;
    anyhow::ensure!(
        !matches!(args.device.device, DeviceName::Sim(_)),
        "--lora-modules: --device {} serves no adapters; --device cpu and --device cuda do",
        args.device.device
    );
    Ok(())
}

fn rank(text: &str) -> Result<u32, String> {
    let known = text.parse().ok().filter(|rank| RANKS.contains(rank));
    known.ok_or_else(|| format!("must be one of {RANKS:?}"))
}

/// One adapter, several with commas between them (of a variable, and so of --config), or a JSON
/// array. Only JSON has room for paths with commas.
fn modules(text: &str) -> Result<Modules, String> {
    let text = text.trim();
    let json = |e: serde_json::Error| format!("{e}; an object has `name` and `path`");
    if text.starts_with('[') {
        return serde_json::from_str(text).map(Modules).map_err(json);
    }
    let (mut list, mut rest) = (Vec::new(), text);
    loop {
        let (module, behind) = match rest.starts_with('{') {
            true => first_object(rest).map_err(json)?,
            false => first_pair(rest)?,
        };
        list.push(module);
        rest = match behind.trim_start().strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if behind.trim().is_empty() => return Ok(Modules(list)),
            None => return Err(format!("{behind:?} behind an object")),
        };
    }
}

/// The object that a text begins with, and what is behind it.
fn first_object(text: &str) -> serde_json::Result<(LoraModule, &str)> {
    let mut objects = serde_json::Deserializer::from_str(text).into_iter();
    // A text that begins with `{` has an object or an error.
    let first = objects.next().unwrap_or_else(|| serde_json::from_str(text))?;
    Ok((first, &text[objects.byte_offset()..]))
}

/// The same of NAME=PATH, up to a comma.
fn first_pair(text: &str) -> Result<(LoraModule, &str), String> {
    let end = text.find(',').unwrap_or(text.len());
    let (pair, behind) = text.split_at(end);
    let (name, path) = pair
        .split_once('=')
        .ok_or_else(|| format!("{pair:?} must be NAME=PATH; a path with commas needs JSON"))?;
    let (name, path) = (name.trim().to_owned(), path.trim().to_owned());
    Ok((LoraModule { name, path, base_model_name: None }, behind))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};
    use super::*;

    fn parsed(words: &[&str]) -> Result<Box<ServeArgs>, String> {
        let line = ["saccade", "frontend"].iter().chain(words);
        match Cli::try_parse_from(line).map_err(|error| error.to_string())?.command {
            Command::Frontend(args) => Ok(args),
            _ => Err("another command".into()),
        }
    }

    fn given(words: &[&str]) -> Vec<(String, String, Option<String>)> {
        let modules = parsed(words).unwrap().lora.lora_modules;
        modules.into_iter().map(|m| (m.name, m.path, m.base_model_name)).collect()
    }

    fn pair(name: &str, path: &str) -> (String, String, Option<String>) {
        (name.into(), path.into(), None)
    }

    #[test]
    fn modules_come_in_every_form_of_vllms_and_in_their_order() {
        let (a, b) = (pair("a", "/x=1"), pair("b", "org/b"));
        assert_eq!(given(&["--lora-modules", "a=/x=1", "b=org/b"]), [a.clone(), b.clone()]);
        let twice = ["--lora-modules", "b=org/b", "--lora-modules", "a=/x=1"];
        assert_eq!(given(&twice), [b.clone(), a.clone()]);
        assert_eq!(given(&["--lora-modules=a=/x=1,b=org/b"]), [a.clone(), b.clone()]);
        let object = r#"{"name": "c", "path": "/y,z", "base_model_name": "m"}"#;
        let c = ("c".to_owned(), "/y,z".to_owned(), Some("m".to_owned()));
        assert_eq!(given(&["--lora-modules", object]), std::slice::from_ref(&c));
        let mixed = format!("{object}, a=/x=1,{object}");
        assert_eq!(given(&["--lora-modules", &mixed]), [c.clone(), a.clone(), c.clone()]);
        let array = format!("[{object}, {{\"name\": \"b\", \"path\": \"org/b\"}}]");
        assert_eq!(given(&["--enable-lora", "--lora-modules", &array]), [c, b]);
        assert_eq!(given(&[]), []);
    }

    #[test]
    fn what_is_no_module_is_refused_with_the_form() {
        for (text, why) in [
            ("a", "NAME=PATH"),
            ("a=/x,y", "a path with commas needs JSON"),
            ("", "NAME=PATH"),
            ("a=/x,", "NAME=PATH"),
            (r#"{"name": "a"}"#, "`path`"),
            (r#"{"name": "a", "path": "b", "rank": 8}"#, "rank"),
            (r#"{"name": "a", "path": "b"} x"#, "behind an object"),
            (r#"{"name": "a", "path": "b""#, "EOF"),
            (r#"["a=/x"]"#, "`name` and `path`"),
        ] {
            let said = parsed(&["--lora-modules", text]).unwrap_err();
            assert!(said.contains("--lora-modules") && said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn modules_alone_enable_adapters_and_nothing_else_does() {
        assert!(parsed(&["--lora-modules", "a=/x"]).unwrap().lora.serves_adapters());
        assert!(!parsed(&["--max-loras", "2"]).unwrap().lora.serves_adapters());
        let said = parsed(&["--enable-lora"]).unwrap_err();
        assert!(said.contains("--enable-lora: --lora-modules names no adapter"), "{said}");
    }

    #[test]
    fn more_modules_than_max_loras_name_both() {
        let two = ["--lora-modules", "a=/x", "b=/y", "--max-loras"];
        let said = parsed(&[&two[..], &["1"]].concat()).unwrap_err();
        assert!(said.contains("--lora-modules names 2 adapters"), "{said}");
        assert!(said.contains("--max-loras is 1"), "{said}");
        assert_eq!(parsed(&[&two[..], &["2"]].concat()).unwrap().lora.max_loras, Some(2));
        assert!(parsed(&["--max-loras", "0"]).is_err());
    }

    #[test]
    fn ranks_are_vllms() {
        assert_eq!(parsed(&[]).unwrap().lora.max_lora_rank, 16);
        assert_eq!(parsed(&["--max-lora-rank", "320"]).unwrap().lora.max_lora_rank, 320);
        for rank in ["0", "17", "1024", "x"] {
            let said = parsed(&["--max-lora-rank", rank]).unwrap_err();
            assert!(said.contains("--max-lora-rank") && said.contains("320, 512]"), "{said}");
        }
    }

    #[test]
    fn names_must_be_told_apart_and_the_device_must_have_adapters() {
        let refused = |words: &[&str]| check(&parsed(words).unwrap()).unwrap_err().to_string();
        let said = refused(&["./m", "--lora-modules", "./m=/x"]);
        assert!(said.contains("--lora-modules: `./m` is a name of the model"), "{said}");
        let said = refused(&["--lora-modules", "saccade-tiny=/x"]);
        assert!(said.contains("`saccade-tiny` is a name of the model"), "{said}");
        let said = refused(&["--lora-modules", "a=/x", "a=/y"]);
        assert!(said.contains("two adapters are named `a`"), "{said}");
        let said = refused(&["--lora-modules", "a=/x", "--device", "sim:h100"]);
        assert!(said.contains("--device sim:h100 serves no adapters"), "{said}");
        assert!(check(&parsed(&["--device", "sim:h100"]).unwrap()).is_ok());
        for device in ["cpu", "null", "cuda", "cuda:null"] {
            let words = ["--lora-modules", "a=/x", "--device", device];
            assert!(check(&parsed(&words).unwrap()).is_ok(), "{device}");
        }
    }
}
