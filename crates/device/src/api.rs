//! The C interface as a table of functions: from the linked library, or from one loaded at run
//! time for a device of another kind.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use crate::sys::{self, SacAdapterPair, SacDevice, SacDeviceConfig, SacModelConfig};
use crate::{DeviceError, Result, error};

macro_rules! table {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// Every function that drives a device.
        pub(crate) struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        /// The functions of the linked library.
        pub(crate) static LINKED: Api = Api { $($name: sys::$name,)* };

        impl Api {
            /// Looks up every function in a library.
            ///
            /// # Safety
            /// The library's functions of these names have the types in saccade_device.h, and the
            /// library stays loaded for the life of the value.
            pub(crate) unsafe fn take(
                library: &libloading::Library,
            ) -> std::result::Result<Api, libloading::Error> {
                Ok(Api { $(
                    // SAFETY: the caller vouches for the type.
                    $name: unsafe {
                        *library.get(concat!(stringify!($name), "\0").as_bytes())?
                    },
                )* })
            }
        }
    };
}

table! {
    sac_last_error: fn() -> *const c_char;
    sac_control_abi: fn() -> u64;
    sac_device_create: fn(
        *const SacDeviceConfig, *const SacModelConfig, u32, *mut *mut SacDevice
    ) -> c_int;
    sac_device_destroy: fn(*mut SacDevice);
    sac_device_set_tensor: fn(
        *mut SacDevice, u32, u32, u32, u32, u64, u64, *const c_void, *const f32
    ) -> c_int;
    sac_device_fill_dummy: fn(*mut SacDevice, u64) -> c_int;
    sac_device_set_rope: fn(*mut SacDevice, *const f32, *const f32, u64) -> c_int;
    sac_device_set_vocab: fn(*mut SacDevice, *const u32, *const u8, u32) -> c_int;
    sac_device_set_adapter: fn(*mut SacDevice, u32, u64, u64) -> c_int;
    sac_device_set_adapter_pair: fn(*mut SacDevice, u32, *const SacAdapterPair) -> c_int;
    sac_device_finish_load: fn(*mut SacDevice) -> c_int;
    sac_device_attach: fn(*mut SacDevice, *mut c_void, u64) -> c_int;
    sac_device_run: fn(*mut SacDevice) -> c_int;
    sac_device_stop: fn(*mut SacDevice);
    sac_device_ready: fn(*mut SacDevice) -> c_int;
    sac_device_tick: fn(*mut SacDevice) -> c_int;
    sac_device_decisions: fn(*const SacDevice, *mut u64, u64) -> u64;
    sac_device_check: fn(*const SacDevice) -> c_int;
}

impl Api {
    /// Loads a library for the life of the process.
    pub(crate) fn load(path: &Path) -> Result<(&'static Api, &'static libloading::Library)> {
        let failed =
            |e: libloading::Error| error("load library", format!("{}: {e}", path.display()));
        // SAFETY: the library's initialisers are those of the C++ and CUDA runtimes; the user who
        // starts the process names it, like the process's own libraries.
        let library: &'static libloading::Library =
            Box::leak(Box::new(unsafe { libloading::Library::new(path) }.map_err(failed)?));
        // SAFETY: the library is never unloaded; its functions have these types if the sizes of the
        // structs agree, which is checked before any of them is called.
        let api: &'static Api = Box::leak(Box::new(unsafe { Api::take(library) }.map_err(failed)?));
        if api.abi_matches() { Ok((api, library)) } else { Err(other_build(path)) }
    }

    /// Whether both sides were compiled against the same structs.
    pub(crate) fn abi_matches(&self) -> bool {
        // SAFETY: takes nothing, returns a constant.
        sys::control_abi() == unsafe { (self.sac_control_abi)() }
    }

    /// Turns a status code of the C interface into a result with its message.
    pub(crate) fn check(&self, what: &'static str, code: c_int) -> Result<()> {
        if code >= 0 {
            return Ok(());
        }
        // SAFETY: sac_last_error returns a NUL-terminated string of this thread, valid until the
        // next call.
        let sentence = unsafe { CStr::from_ptr((self.sac_last_error)()) };
        Err(error(what, sentence.to_string_lossy().into_owned()))
    }
}

fn other_build(path: &Path) -> DeviceError {
    let sentence = format!("{} belongs to another version of this program", path.display());
    error("load library", sentence)
}
