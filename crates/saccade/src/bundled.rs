//! The small model that the binary carries, served when none is named.

/// Name in the API.
pub(crate) const NAME: &str = "saccade-tiny";

/// Writes the model's folder below `parent` and returns its path.
#[cfg(feature = "bundled-model")]
pub(crate) fn unpack(parent: &std::path::Path) -> anyhow::Result<std::path::PathBuf> {
    use anyhow::Context;

    static FILES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/bundled_model.rs"));
    let folder = parent.join(NAME);
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for (name, bytes) in FILES {
        let path = folder.join(name);
        let unpacked = std::fs::write(&path, bytes).and_then(|()| {
            // The same time at each start: files are recognised by it (--packed-weights-cache).
            let file = std::fs::File::options().write(true).open(&path)?;
            file.set_modified(std::time::UNIX_EPOCH)
        });
        unpacked.with_context(|| format!("write {}", path.display()))?;
    }
    Ok(folder)
}

/// This build carries no model.
#[cfg(not(feature = "bundled-model"))]
pub(crate) fn unpack(_parent: &std::path::Path) -> anyhow::Result<std::path::PathBuf> {
    anyhow::bail!("this build carries no model: name one (a folder, or a hub id)")
}
