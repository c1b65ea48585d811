//! Codecs of chunks: a transform, which makes one byte of each element and keeps the rest aside,
//! and a coder of those bytes. Planes are coded one by one, so that a pipeline decodes the next one
//! while it places the last one.
//!
//! ```text
//! directory  of each plane: bytes aside, bytes coded   2 x u32 LE
//! planes     what is aside, then what is coded
//! ```

mod bins;
mod cachegen;
mod coder;
mod exponents;
mod levels;
mod vectorized;

use std::str::FromStr;

use crate::{Dtype, Geometry};
use coder::Coder;

/// The bytes are not a chunk of this geometry, coded by this codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The directory, or a plane, exceeds what is there.
    #[error("the planes have other lengths than the directory says")]
    Directory,
    /// A coder refused its bytes.
    #[error("plane {plane}: {reason}")]
    Coded {
        /// Of the chunk.
        plane: usize,
        /// Of the coder.
        reason: &'static str,
    },
    /// What is kept aside has another length than its transform needs.
    #[error("plane {plane}: what is kept aside has another length")]
    Aside {
        /// Of the chunk.
        plane: usize,
    },
}

/// How a chunk is coded. Names are those of `--prefix-codec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// Not at all.
    Raw = 0,
    /// Every bit returns: exponents are split from mantissas and coded by rANS.
    Lossless = 1,
    /// 8 bits per element and a scale per vector (fp8 stays as it is); Deflate.
    BinsDeflate = 2,
    /// The same; zstd.
    BinsZstd = 3,
    /// The same; rANS.
    BinsRans = 4,
    /// CacheGen's schedule of 32 and 16 levels (arXiv:2310.07240), coded by rANS.
    Cachegen = 5,
}

impl Codec {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Raw,
        Self::Lossless,
        Self::BinsDeflate,
        Self::BinsZstd,
        Self::BinsRans,
        Self::Cachegen,
    ];

    /// As in `--prefix-codec`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Lossless => "lossless",
            Self::BinsDeflate => "bins-deflate",
            Self::BinsZstd => "bins-zstd",
            Self::BinsRans => "bins-rans",
            Self::Cachegen => "cachegen",
        }
    }

    /// Decoding gives every bit back.
    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Raw | Self::Lossless)
    }

    pub(crate) fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| *codec as u8 == id)
    }

    fn coder(self) -> Coder {
        match self {
            Self::Raw => Coder::None,
            Self::Lossless | Self::BinsRans | Self::Cachegen => Coder::Rans,
            Self::BinsDeflate => Coder::Deflate,
            Self::BinsZstd => Coder::Zstd,
        }
    }

    fn transform(self, dtype: Dtype) -> &'static dyn Transform {
        match self {
            Self::Raw => &Identity,
            Self::Lossless => &exponents::Exponents,
            // Other 8 bits than an element has would be no shorter, and less exact.
            Self::BinsDeflate | Self::BinsZstd | Self::BinsRans if dtype == Dtype::Fp8 => {
                &exponents::Exponents
            }
            Self::BinsDeflate | Self::BinsZstd | Self::BinsRans => &bins::Bins,
            Self::Cachegen => &cachegen::Cachegen,
        }
    }
}

impl FromStr for Codec {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|codec| codec.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|codec| codec.name()).collect();
            format!("{name:?} is no codec; there are {}", names.join(", "))
        })
    }
}

/// What happens to a plane before it is coded.
trait Transform: Sync {
    /// Bytes to be coded, of a plane.
    fn num_symbols(&self, geometry: &Geometry) -> usize {
        geometry.plane_elements()
    }
    /// Writes what is coded to `symbols`, and the rest to `aside`; both are empty.
    fn forward(
        &self,
        g: &Geometry,
        plane: usize,
        kv: &[u8],
        symbols: &mut Vec<u8>,
        aside: &mut Vec<u8>,
    );
    /// Writes the plane. False: `aside` has another length than it must have.
    fn inverse(
        &self,
        g: &Geometry,
        plane: usize,
        symbols: &[u8],
        aside: &[u8],
        kv: &mut [u8],
    ) -> bool;
}

struct Identity;

impl Transform for Identity {
    fn num_symbols(&self, _: &Geometry) -> usize {
        0
    }
    fn forward(&self, _: &Geometry, _: usize, kv: &[u8], _: &mut Vec<u8>, aside: &mut Vec<u8>) {
        aside.extend(kv);
    }
    fn inverse(&self, _: &Geometry, _: usize, _: &[u8], aside: &[u8], kv: &mut [u8]) -> bool {
        let fits = aside.len() == kv.len();
        if fits {
            kv.copy_from_slice(aside);
        }
        fits
    }
}

/// Memory of an encoder or a decoder, kept from chunk to chunk.
#[derive(Default)]
pub struct Scratch {
    symbols: Vec<u8>,
    aside: Vec<u8>,
    coder: coder::Memory,
}

/// Appends the code of a chunk.
///
/// # Panics
/// `kv` has another length than the geometry says.
pub fn encode(
    codec: Codec,
    geometry: &Geometry,
    kv: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) {
    assert_eq!(kv.len(), geometry.bytes());
    let directory = out.len();
    out.resize(directory + 8 * geometry.num_planes(), 0);
    for (plane, kv) in kv.chunks_exact(geometry.plane_bytes()).enumerate() {
        scratch.symbols.clear();
        scratch.aside.clear();
        let transform = codec.transform(geometry.dtype);
        transform.forward(geometry, plane, kv, &mut scratch.symbols, &mut scratch.aside);
        out.extend(&scratch.aside);
        let coded_from = out.len();
        codec.coder().encode(&scratch.symbols, &mut scratch.coder, out);
        let lengths = [scratch.aside.len() as u32, (out.len() - coded_from) as u32];
        for (i, length) in lengths.into_iter().enumerate() {
            let at = directory + 8 * plane + 4 * i;
            out[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// A coded chunk whose directory was checked. It may own its bytes, so that a pipeline can hand it
/// from thread to thread.
pub struct Coded<B> {
    codec: Codec,
    geometry: Geometry,
    bytes: B,
    planes: Vec<Plane>,
}

/// Where one coded plane is.
#[derive(Clone, Copy)]
struct Plane {
    at: usize,
    aside: usize,
    coded: usize,
}

impl<B: AsRef<[u8]>> Coded<B> {
    /// Finds the planes.
    ///
    /// # Errors
    /// The directory does not describe `bytes`.
    pub fn new(codec: Codec, geometry: &Geometry, bytes: B) -> Result<Self, Malformed> {
        Self::behind(0, codec, geometry, bytes)
    }

    /// As [`Self::new`], of a chunk that has `from` other bytes in front of it.
    pub(crate) fn behind(
        from: usize,
        codec: Codec,
        geometry: &Geometry,
        bytes: B,
    ) -> Result<Self, Malformed> {
        let all = bytes.as_ref();
        let directory_end = from + 8 * geometry.num_planes();
        let directory = all.get(from..directory_end).ok_or(Malformed::Directory)?;
        let mut end = directory_end;
        let mut take = |[aside, coded]: &[[u8; 4]; 2]| {
            let [aside, coded] = [aside, coded].map(|n| u32::from_le_bytes(*n) as usize);
            let at = end;
            end = at.checked_add(aside)?.checked_add(coded)?;
            (end <= all.len()).then_some(Plane { at, aside, coded })
        };
        let lengths = directory.as_chunks::<4>().0.as_chunks::<2>().0;
        let planes: Option<Vec<_>> = lengths.iter().map(&mut take).collect();
        let planes = planes.ok_or(Malformed::Directory)?;
        if end != all.len() {
            return Err(Malformed::Directory);
        }
        Ok(Self { codec, geometry: *geometry, bytes, planes })
    }

    /// How it is coded.
    pub const fn codec(&self) -> Codec {
        self.codec
    }

    /// Its shape.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Writes one plane: first what the coder does, then the transform.
    ///
    /// # Errors
    /// The plane is malformed; `kv` then holds anything.
    ///
    /// # Panics
    /// There is no such plane, or `kv` has not its length.
    pub fn decode_plane(
        &self,
        plane: usize,
        kv: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), Malformed> {
        self.decode_symbols(plane, scratch)?;
        self.place(plane, kv, scratch)
    }

    /// The first half of [`Self::decode_plane`]: undoes the coder, into `scratch`.
    ///
    /// # Errors
    /// As [`Self::decode_plane`].
    pub fn decode_symbols(&self, plane: usize, scratch: &mut Scratch) -> Result<(), Malformed> {
        let transform = self.codec.transform(self.geometry.dtype);
        scratch.symbols.resize(transform.num_symbols(&self.geometry), 0);
        let (_, coded) = self.plane(plane);
        let done = self.codec.coder().decode(coded, &mut scratch.coder, &mut scratch.symbols);
        done.map_err(|reason| Malformed::Coded { plane, reason })
    }

    /// The second half: undoes the transform of what is in `scratch`.
    ///
    /// # Errors
    /// As [`Self::decode_plane`].
    pub fn place(&self, plane: usize, kv: &mut [u8], scratch: &Scratch) -> Result<(), Malformed> {
        assert_eq!(kv.len(), self.geometry.plane_bytes());
        let (aside, _) = self.plane(plane);
        let transform = self.codec.transform(self.geometry.dtype);
        if transform.inverse(&self.geometry, plane, &scratch.symbols, aside, kv) {
            Ok(())
        } else {
            Err(Malformed::Aside { plane })
        }
    }

    /// What is aside, and what is coded.
    fn plane(&self, plane: usize) -> (&[u8], &[u8]) {
        let Plane { at, aside, coded } = self.planes[plane];
        self.bytes.as_ref()[at..at + aside + coded].split_at(aside)
    }
}

/// Writes a chunk from its code.
///
/// # Errors
/// The bytes are no such code; `kv` then holds anything.
///
/// # Panics
/// `kv` has another length than the geometry says.
pub fn decode(
    codec: Codec,
    geometry: &Geometry,
    bytes: &[u8],
    scratch: &mut Scratch,
    kv: &mut [u8],
) -> Result<(), Malformed> {
    assert_eq!(kv.len(), geometry.bytes());
    let coded = Coded::new(codec, geometry, bytes)?;
    for (plane, kv) in kv.chunks_exact_mut(geometry.plane_bytes()).enumerate() {
        coded.decode_plane(plane, kv, scratch)?;
    }
    Ok(())
}
