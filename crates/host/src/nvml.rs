//! Asks NVIDIA's driver library which processes compute on which GPU, where it is installed.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_uint, c_void};

/// `NVML_SUCCESS`
const SUCCESS: c_int = 0;
/// Processes asked for on one GPU.
const MAX_PROCESSES: usize = 256;
/// GPUs asked for; the largest single machines have 16.
const MAX_DEVICES: c_uint = 64;

/// `nvmlProcessInfo_t`, as `nvmlDeviceGetComputeRunningProcesses_v3` fills it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used_bytes: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

type Device = *mut c_void;

/// The functions used of the library.
struct Nvml {
    init: unsafe extern "C" fn() -> c_int,
    shutdown: unsafe extern "C" fn() -> c_int,
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    handle: unsafe extern "C" fn(c_uint, *mut Device) -> c_int,
    minor: unsafe extern "C" fn(Device, *mut c_uint) -> c_int,
    processes: unsafe extern "C" fn(Device, *mut c_uint, *mut ProcessInfo) -> c_int,
}

/// Minor numbers of the GPUs on which one of `pids` computes. `None`: no library, or it names none
/// of them, as in containers, where it counts processes as the host does.
pub(crate) fn computing(pids: &[u32]) -> Option<BTreeSet<u32>> {
    let nvml = Nvml::load()?;
    // SAFETY: `load` found the function under its documented name and signature.
    if unsafe { (nvml.init)() } != SUCCESS {
        return None;
    }
    let found = nvml.minors_of(pids);
    // SAFETY: as above, after a successful init.
    unsafe { (nvml.shutdown)() };
    (!found.is_empty()).then_some(found)
}

impl Nvml {
    fn load() -> Option<Nvml> {
        // SAFETY: the name is a C string. The library stays loaded until the process ends.
        let library = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_LAZY) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the types of the fields are those of nvml.h for these names.
        unsafe {
            Some(Nvml {
                init: function(library, c"nvmlInit_v2")?,
                shutdown: function(library, c"nvmlShutdown")?,
                count: function(library, c"nvmlDeviceGetCount_v2")?,
                handle: function(library, c"nvmlDeviceGetHandleByIndex_v2")?,
                minor: function(library, c"nvmlDeviceGetMinorNumber")?,
                processes: function(library, c"nvmlDeviceGetComputeRunningProcesses_v3")?,
            })
        }
    }

    fn minors_of(&self, pids: &[u32]) -> BTreeSet<u32> {
        let mut count = 0;
        // SAFETY: writes one number.
        if unsafe { (self.count)(&raw mut count) } != SUCCESS {
            return BTreeSet::new();
        }
        (0..count.min(MAX_DEVICES)).filter_map(|index| self.minor_if_used(index, pids)).collect()
    }

    fn minor_if_used(&self, index: c_uint, pids: &[u32]) -> Option<u32> {
        let mut device: Device = std::ptr::null_mut();
        let mut minor = 0;
        let mut found = [ProcessInfo::default(); MAX_PROCESSES];
        let mut len = MAX_PROCESSES as c_uint;
        // SAFETY: each call writes what its pointer leads to; the last at most `len` entries.
        let ok = unsafe {
            (self.handle)(index, &raw mut device) == SUCCESS
                && (self.minor)(device, &raw mut minor) == SUCCESS
                && (self.processes)(device, &raw mut len, found.as_mut_ptr()) == SUCCESS
        };
        let found = found.get(..len as usize).filter(|_| ok)?;
        found.iter().any(|process| pids.contains(&process.pid)).then_some(minor)
    }
}

/// A function of an open library. `None`: it has none of this name.
///
/// # Safety
/// `F` is the type of a C function, and that of the function with this name.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open and the name is a C string.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: of the same size, not null, and of this type as the caller promises.
    (!at.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&at) })
}
