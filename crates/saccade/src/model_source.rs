//! From what the user named to a folder that is opened and checked.

use std::path::{Path, PathBuf};

use anyhow::Context;
use saccade_model::{ModelFolder, OpenOptions};

use crate::bundled;
use crate::cli::{LoadFormat, ModelArgs};
use crate::run_folder::{self, RunFolder};

/// Where the bundled model is unpacked, if it is; what was made for it goes when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    within: Option<PathBuf>,
    own: Option<RunFolder>,
}

impl Scratch {
    /// In a folder that the caller keeps and removes.
    #[cfg(feature = "device")]
    pub fn within(folder: &Path) -> Scratch {
        Scratch { within: Some(folder.to_owned()), own: None }
    }

    fn path(&mut self) -> anyhow::Result<&Path> {
        if let Some(folder) = &self.within {
            return Ok(folder);
        }
        let own = match self.own.take() {
            Some(own) => own,
            None => {
                run_folder::sweep_all();
                RunFolder::create(&std::env::temp_dir()).context("make a temporary folder")?
            }
        };
        Ok(self.own.insert(own).path())
    }
}

/// Opens the model that the arguments name. `scratch` receives the bundled model if none is named.
pub(crate) fn open(args: &ModelArgs, scratch: &mut Scratch) -> anyhow::Result<ModelFolder> {
    let name = match (&args.model_folder, args.name()) {
        (Some(folder), _) => folder.display().to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => bundled::unpack(scratch.path()?)?.display().to_string(),
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
