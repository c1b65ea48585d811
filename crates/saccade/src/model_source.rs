//! From what the user named to a folder that is opened and checked.

use std::path::Path;

use anyhow::Context;
use saccade_model::{ModelFolder, OpenOptions};

use crate::bundled;
use crate::cli::{LoadFormat, ModelArgs};

/// Opens the model that the arguments name. `scratch` receives the bundled model if none is named.
pub(crate) fn open(args: &ModelArgs, scratch: &Path) -> anyhow::Result<ModelFolder> {
    let name = match (&args.model_folder, args.name()) {
        (Some(folder), _) => folder.display().to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => bundled::unpack(scratch)?.display().to_string(),
    };
    let options = OpenOptions {
        revision: args.revision.clone(),
        weights: args.load_format != LoadFormat::Dummy,
        ..OpenOptions::default()
    };
    Ok(ModelFolder::open(&name, &options)?)
}

/// Names in the API: --served-model-name, else what the user typed.
pub(crate) fn served_names(args: &ModelArgs) -> Vec<String> {
    if !args.served_model_name.is_empty() {
        return args.served_model_name.clone();
    }
    vec![args.name().unwrap_or(bundled::NAME).to_owned()]
}

/// A folder for what one plane unpacks; removed when dropped.
pub(crate) fn scratch() -> anyhow::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("saccade-").tempdir().context("create a temporary folder")
}
