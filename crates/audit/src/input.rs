//! Where accounting comes from: files, patterns of files, standard input; plain, gzip or zstd.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The start of an input tells what it is, so it must fit here.
const BUFFER: usize = 1 << 20;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// One input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl Source {
    /// For messages and reports.
    pub fn name(&self) -> String {
        match self {
            Source::Stdin => "standard input".to_owned(),
            Source::File(path) => path.display().to_string(),
        }
    }

    /// Opens it and undoes its compression, which its first bytes tell.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub fn open(&self) -> Result<Box<dyn BufRead>> {
        let raw: Box<dyn Read> = match self {
            Source::Stdin => Box::new(io::stdin()),
            Source::File(path) => Box::new(File::open(path)?),
        };
        let mut raw = BufReader::with_capacity(BUFFER, raw);
        let start = raw.fill_buf()?;
        if start.starts_with(&GZIP) {
            let plain = flate2::bufread::MultiGzDecoder::new(raw);
            return Ok(Box::new(BufReader::with_capacity(BUFFER, plain)));
        }
        if start.starts_with(&ZSTD) {
            return Ok(Box::new(BufReader::with_capacity(BUFFER, Zstd::new(raw)?)));
        }
        Ok(Box::new(raw))
    }
}

/// The inputs that `patterns` name: files, patterns with `*`, `?` or `[..]`, `-` for standard
/// input. No pattern means standard input, if that is not a terminal.
///
/// # Errors
/// A pattern is malformed or matches nothing.
pub fn sources(patterns: &[String]) -> Result<Vec<Source>> {
    if patterns.is_empty() {
        if io::stdin().is_terminal() {
            bail!("no input: name files, or pipe the output of sacct or kubectl (see --help)");
        }
        return Ok(vec![Source::Stdin]);
    }
    let mut all = Vec::new();
    for pattern in patterns {
        let is_pattern = pattern.contains(['*', '?', '[']) && !Path::new(pattern).exists();
        match pattern.as_str() {
            "-" => all.push(Source::Stdin),
            _ if is_pattern => all.extend(matches(pattern)?),
            _ => all.push(Source::File(pattern.into())),
        }
    }
    Ok(all)
}

fn matches(pattern: &str) -> Result<Vec<Source>> {
    let paths = glob::glob(pattern).with_context(|| format!("the pattern {pattern}"))?;
    let files: Vec<Source> =
        paths.collect::<Result<Vec<_>, _>>()?.into_iter().map(Source::File).collect();
    if files.is_empty() {
        bail!("no file matches {pattern}");
    }
    Ok(files)
}

/// Concatenated Zstandard frames, as parallel compressors write them.
struct Zstd<R: BufRead> {
    /// Between frames it holds the input.
    frame: Option<ruzstd::decoding::StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>,
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> io::Result<Zstd<R>> {
        Ok(Zstd { frame: Some(frame(input)?) })
    }
}

fn frame<R: BufRead>(
    input: R,
) -> io::Result<ruzstd::decoding::StreamingDecoder<R, ruzstd::decoding::FrameDecoder>> {
    ruzstd::decoding::StreamingDecoder::new(input).map_err(io::Error::other)
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(current) = &mut self.frame {
            let count = current.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(ended) = self.frame.take() else { break };
            let mut input = ended.into_inner();
            if !input.fill_buf()?.is_empty() {
                self.frame = Some(frame(input)?);
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn patterns_and_names() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.txt", "a.txt", "c.json"] {
            std::fs::write(folder.path().join(name), "x").expect("a file");
        }
        let pattern = folder.path().join("*.txt").display().to_string();
        let found = sources(&[pattern, "-".to_owned()]).expect("matches");
        let file = |name: &str| Source::File(folder.path().join(name));
        assert_eq!(found, [file("a.txt"), file("b.txt"), Source::Stdin]);
        let none = folder.path().join("*.gz").display().to_string();
        assert!(sources(&[none]).is_err());
    }

    #[test]
    fn gzip_and_zstd_are_known_by_their_first_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "JobID|AllocTRES\n".repeat(10_000);
        let half = text.len() / 2;
        let zipped = |part: &str| {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(part.as_bytes()).expect("memory");
            out.finish().expect("memory")
        };
        let packed = |part: &str| {
            let level = ruzstd::encoding::CompressionLevel::Fastest;
            ruzstd::encoding::compress_to_vec(part.as_bytes(), level)
        };
        // Two members, as from parallel compressors.
        let gzip = [zipped(&text[..half]), zipped(&text[half..])].concat();
        let zstd = [packed(&text[..half]), packed(&text[half..])].concat();
        for bytes in [text.clone().into_bytes(), gzip, zstd] {
            let path = folder.path().join("dump");
            std::fs::write(&path, bytes).expect("a file");
            let mut read = String::new();
            let mut input = Source::File(path).open().expect("a known form");
            input.read_to_string(&mut read).expect("readable");
            assert_eq!(read, text);
        }
    }
}
