//! Lossless coders of bytes. What a coder would not shorten is stored.

use crate::{deflate, rans};

/// First byte of what is coded: the bytes follow as they are.
const STORED: u8 = 0;
const CODED: u8 = 1;

/// At which the data, almost without repetitions, is coded fastest at its ratio.
const ZSTD_LEVEL: i32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coder {
    /// There is nothing to code.
    None,
    Deflate,
    Zstd,
    Rans,
}

/// Contexts of the libraries, made when first needed.
#[derive(Default)]
pub(super) struct Memory {
    deflate: deflate::Memory,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    unzstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Coder {
    /// Appends the code of `bytes`.
    pub(super) fn encode(self, bytes: &[u8], memory: &mut Memory, out: &mut Vec<u8>) {
        if self == Self::None {
            return;
        }
        let from = out.len();
        out.push(CODED);
        let coded = self.try_encode(bytes, memory, out);
        if coded.is_none() || out.len() - from > bytes.len() {
            out.truncate(from);
            out.push(STORED);
            out.extend(bytes);
        }
    }

    /// None: it refused, for lack of memory or because the code is longer than its bound.
    fn try_encode(self, bytes: &[u8], memory: &mut Memory, out: &mut Vec<u8>) -> Option<()> {
        let from = out.len();
        match self {
            Self::None => {}
            Self::Rans => rans::encode(bytes, out),
            Self::Deflate => deflate::encode(bytes, &mut memory.deflate, out)?,
            Self::Zstd => {
                if memory.zstd.is_none() {
                    memory.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                out.resize(from + zstd::zstd_safe::compress_bound(bytes.len()), 0);
                let length =
                    memory.zstd.as_mut()?.compress_to_buffer(bytes, &mut out[from..]).ok()?;
                out.truncate(from + length);
            }
        }
        Some(())
    }

    /// Fills `out` from its code.
    pub(super) fn decode(
        self,
        coded: &[u8],
        memory: &mut Memory,
        out: &mut [u8],
    ) -> Result<(), &'static str> {
        if self == Self::None {
            return if coded.is_empty() { Ok(()) } else { Err("bytes where none are coded") };
        }
        match coded.split_first() {
            Some((&STORED, bytes)) if bytes.len() == out.len() => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            Some((&STORED, _)) => Err("stored bytes of another length"),
            Some((&CODED, bytes)) => self.decode_bytes(bytes, memory, out),
            _ => Err("neither stored nor coded"),
        }
    }

    fn decode_bytes(
        self,
        bytes: &[u8],
        memory: &mut Memory,
        out: &mut [u8],
    ) -> Result<(), &'static str> {
        let length = match self {
            Self::None => 0,
            Self::Rans => {
                rans::decode(bytes, out).map_err(|malformed| malformed.reason())?;
                out.len()
            }
            Self::Deflate => {
                deflate::decode(bytes, &mut memory.deflate, out)?;
                out.len()
            }
            Self::Zstd => {
                if memory.unzstd.is_none() {
                    memory.unzstd = zstd::bulk::Decompressor::new().ok();
                }
                let unzstd = memory.unzstd.as_mut().ok_or("zstd has no memory")?;
                unzstd.decompress_to_buffer(bytes, out).map_err(|_| "not a zstd frame")?
            }
        };
        if length == out.len() { Ok(()) } else { Err("fewer bytes than the plane has") }
    }
}
