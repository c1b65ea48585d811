//! The names that requests may use: the model's own, and those of its adapters.

use std::collections::HashSet;

use saccade_ring::layout::SAC_MAX_ADAPTERS;

use crate::config::{Adapter, FrontendConfig};
use crate::error::FrontendError;
use crate::limits::MAX_ADAPTER_NAME_BYTES;

/// Every model that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModels {
    /// Not empty.
    names: Vec<String>,
    adapters: Vec<Adapter>,
}

/// A model by the name that a request used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedModel {
    /// As the request wrote it; the first served name if it wrote none.
    pub name: String,
    /// As the device counts them, from 1; 0: the model as it is.
    pub adapter: u32,
}

impl ServedModels {
    /// Those of a configuration.
    ///
    /// # Errors
    /// See [`check_adapters`].
    pub fn of(config: &FrontendConfig) -> Result<Self, FrontendError> {
        let names = match &config.served_model_names[..] {
            [] => vec![config.model.clone()],
            names => names.to_vec(),
        };
        check_adapters(&names, &config.adapters)
            .map_err(|reason| FrontendError::Config { field: "adapters", reason })?;
        Ok(Self { names, adapters: config.adapters.clone() })
    }

    /// The model's first name.
    pub fn first(&self) -> &str {
        &self.names[0]
    }

    /// The model's names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// In the device's order.
    pub fn adapters(&self) -> &[Adapter] {
        &self.adapters
    }

    /// The model of this name.
    pub fn find(&self, asked: Option<&str>) -> Option<NamedModel> {
        let asked = asked.filter(|name| !name.is_empty()).unwrap_or(self.first());
        let adapter = match self.names.iter().any(|name| name == asked) {
            true => 0,
            false => self.adapters.iter().position(|adapter| adapter.name == asked)? as u32 + 1,
        };
        Some(NamedModel { name: asked.to_owned(), adapter })
    }
}

/// Whether requests can name these adapters of a model with the names `served`.
///
/// # Errors
/// Names the adapter and the bound.
pub fn check_adapters(served: &[String], adapters: &[Adapter]) -> Result<(), String> {
    let (count, most) = (adapters.len(), SAC_MAX_ADAPTERS as usize);
    if count > most {
        return Err(format!("must name at most {most} adapters, got {count}"));
    }
    let mut seen = HashSet::new();
    for Adapter { name, path, .. } in adapters {
        check_name(name)?;
        if path.is_empty() {
            return Err(format!("the path of adapter `{name}` is empty"));
        }
        if served.contains(name) {
            return Err(format!("`{name}` is a name of the model; an adapter must have its own"));
        }
        if !seen.insert(name) {
            return Err(format!("two adapters are named `{name}`"));
        }
    }
    Ok(())
}

/// `vllm:lora_requests_info` lists names with commas between them.
fn check_name(name: &str) -> Result<(), String> {
    let bytes = name.len();
    if bytes == 0 || bytes > MAX_ADAPTER_NAME_BYTES {
        return Err(format!(
            "an adapter's name must have 1 to {MAX_ADAPTER_NAME_BYTES} bytes, got {bytes}"
        ));
    }
    match name.chars().find(|c| c.is_control() || *c == ',') {
        Some(c) => Err(format!("the adapter's name {name:?} must not contain {c:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str) -> Adapter {
        Adapter { name: name.into(), path: "/a".into(), base_model: None }
    }

    fn served(names: &[&str], adapters: &[&str]) -> Result<ServedModels, String> {
        let config = FrontendConfig {
            model: "folder".into(),
            served_model_names: names.iter().map(|name| (*name).to_owned()).collect(),
            adapters: adapters.iter().map(|name| adapter(name)).collect(),
            ..FrontendConfig::default()
        };
        ServedModels::of(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn each_name_is_one_model() {
        let models = served(&["m", "other"], &["a", "b"]).unwrap();
        let number = |name: Option<&str>| models.find(name).map(|model| model.adapter);
        assert_eq!([None, Some(""), Some("m"), Some("other")].map(number), [Some(0); 4]);
        assert_eq!([Some("a"), Some("b")].map(number), [Some(1), Some(2)]);
        assert_eq!([Some("A"), Some("a "), Some("folder")].map(number), [None; 3]);
        assert_eq!(models.find(None).map(|model| model.name), Some("m".into()));
        let unnamed = served(&[], &["a"]).unwrap();
        assert_eq!(unnamed.first(), "folder");
        assert_eq!(unnamed.find(Some("a")).map(|model| model.adapter), Some(1));
    }

    #[test]
    fn names_that_could_mean_two_models_are_refused() {
        let refused = |names: &[&str], adapters: &[&str], why: &str| {
            let error = served(names, adapters).unwrap_err();
            assert!(error.starts_with("adapters: ") && error.contains(why), "{error}");
        };
        refused(&["m"], &["m"], "`m` is a name of the model");
        refused(&["m", "n"], &["a", "n"], "`n` is a name of the model");
        refused(&[], &["folder"], "`folder` is a name of the model");
        refused(&["m"], &["a", "b", "a"], "two adapters are named `a`");
        refused(&["m"], &[""], "1 to 256 bytes, got 0");
        refused(&["m"], &[&"x".repeat(257)], "1 to 256 bytes, got 257");
        refused(&["m"], &["a,b"], "','");
        refused(&["m"], &["a\n"], "'\\n'");
        assert!(served(&["m"], &[&"x".repeat(256)]).is_ok());
        let pathless = Adapter { path: String::new(), ..adapter("a") };
        assert!(check_adapters(&[], &[pathless]).is_err_and(|e| e.contains("path of adapter `a`")));
    }

    #[test]
    fn adapters_are_as_many_as_the_wire_tells_apart() {
        let names: Vec<String> = (0..=SAC_MAX_ADAPTERS).map(|i| format!("a{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(served(&["m"], &names[1..]).is_ok());
        let error = served(&["m"], &names).unwrap_err();
        assert!(error.contains("at most 256 adapters, got 257"), "{error}");
    }
}
