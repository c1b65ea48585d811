//! Owners of the objects of `shim.h`: created once, released once, in the right order.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::ptr::{null, null_mut, slice_from_raw_parts};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::super::{MemoryKind, RemoteError};

/// Time for a closing endpoint to release its requests, which needs no peer.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Room for the names of an endpoint's transports.
const NAMES_BYTES: usize = 256;

#[repr(C)]
#[derive(Debug)]
pub(super) struct WakeHandler {
    pub(super) wake: unsafe extern "C" fn(argument: *mut c_void, at: u64),
    pub(super) argument: *mut c_void,
}

unsafe extern "C" {
    fn sacx_status(status: c_int) -> *const c_char;
    fn sacx_version() -> *const c_char;
    fn sacx_context_create(
        transports: *const c_char,
        interfaces: *const c_char,
        context: *mut *mut c_void,
    ) -> c_int;
    fn sacx_context_destroy(context: *mut c_void);
    fn sacx_memory_map(
        context: *mut c_void,
        base: *mut c_void,
        len: usize,
        memory_kind: c_int,
        memory: *mut *mut c_void,
    ) -> c_int;
    fn sacx_memory_unmap(context: *mut c_void, memory: *mut c_void);
    fn sacx_memory_key(
        context: *mut c_void,
        memory: *mut c_void,
        key: *mut *mut c_void,
        len: *mut usize,
    ) -> c_int;
    fn sacx_key_release(key: *mut c_void);
    fn sacx_worker_create(
        context: *mut c_void,
        worker: *mut *mut c_void,
        event_fd: *mut c_int,
    ) -> c_int;
    fn sacx_worker_destroy(worker: *mut c_void);
    fn sacx_worker_address(
        worker: *mut c_void,
        address: *mut *mut c_void,
        len: *mut usize,
    ) -> c_int;
    fn sacx_worker_address_release(worker: *mut c_void, address: *mut c_void);
    fn sacx_worker_progress(worker: *mut c_void) -> c_uint;
    fn sacx_worker_arm(worker: *mut c_void) -> c_int;
    fn sacx_worker_fence(worker: *mut c_void) -> c_int;
    fn sacx_worker_on_wake(worker: *mut c_void, handler: *const WakeHandler) -> c_int;
    fn sacx_endpoint_create(
        worker: *mut c_void,
        address: *const c_void,
        failed: *mut i32,
        endpoint: *mut *mut c_void,
    ) -> c_int;
    fn sacx_endpoint_close(endpoint: *mut c_void, request: *mut *mut c_void) -> c_int;
    fn sacx_endpoint_transports(endpoint: *mut c_void, names: *mut c_char, len: usize);
    fn sacx_remote_key_unpack(
        endpoint: *mut c_void,
        key: *const c_void,
        remote_key: *mut *mut c_void,
    ) -> c_int;
    fn sacx_remote_key_destroy(remote_key: *mut c_void);
    fn sacx_put(
        endpoint: *mut c_void,
        local: *const c_void,
        len: usize,
        remote: u64,
        key: *mut c_void,
        request: *mut *mut c_void,
    ) -> c_int;
    fn sacx_get(
        endpoint: *mut c_void,
        local: *mut c_void,
        len: usize,
        remote: u64,
        key: *mut c_void,
        request: *mut *mut c_void,
    ) -> c_int;
    fn sacx_fetch_add_u32(
        endpoint: *mut c_void,
        local: *mut u32,
        remote: u64,
        key: *mut c_void,
        request: *mut *mut c_void,
    ) -> c_int;
    fn sacx_wake(endpoint: *mut c_void, at: *const u64, request: *mut *mut c_void) -> c_int;
    fn sacx_flush(endpoint: *mut c_void, request: *mut *mut c_void) -> c_int;
    fn sacx_request_test(request: *mut c_void) -> c_int;
}

/// UCX's message for a status.
fn status_text(status: c_int) -> String {
    // SAFETY: UCX returns a NUL-terminated string that it never frees, for any number.
    unsafe { CStr::from_ptr(sacx_status(status)) }.to_string_lossy().into_owned()
}

/// Version of the library that was loaded.
fn version() -> String {
    // SAFETY: a NUL-terminated constant of the library.
    unsafe { CStr::from_ptr(sacx_version()) }.to_string_lossy().into_owned()
}

fn check(step: &'static str, status: c_int) -> Result<(), RemoteError> {
    if status == 0 {
        return Ok(());
    }
    let why = format!("{} (UCX {})", status_text(status), version());
    Err(RemoteError::Ucx { step, why })
}

/// One per transport or listener; transports are chosen by UCX's own variables (`UCX_TLS`, ...).
#[derive(Debug)]
pub(super) struct Context(*mut c_void);

// SAFETY: made with `mt_workers_shared`: UCX locks what its users share.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// With these transports and interfaces, in the words of `UCX_TLS` and `UCX_NET_DEVICES`;
    /// without, with what those variables say.
    pub(super) fn new(
        transports: Option<&CStr>,
        interfaces: Option<&CStr>,
    ) -> Result<Arc<Context>, RemoteError> {
        let mut context = null_mut();
        let words = [transports, interfaces].map(|word| word.map_or(null(), CStr::as_ptr));
        // SAFETY: the call reads strings, where there are some, and writes one pointer.
        let status = unsafe { sacx_context_create(words[0], words[1], &mut context) };
        check("start UCX", status)?;
        Ok(Arc::new(Context(context)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made in `new`; workers and memory hold an `Arc` of it, so none is left.
        unsafe { sacx_context_destroy(self.0) }
    }
}

/// Registered memory.
#[derive(Debug)]
pub(super) struct MappedMemory {
    memory: *mut c_void,
    context: Arc<Context>,
}

// SAFETY: only a handle, released by the thread that drops it.
unsafe impl Send for MappedMemory {}

impl MappedMemory {
    /// # Safety
    /// `len` bytes from `base` stay mapped, writable and of this kind until the value is dropped;
    /// peers may change any of them at any time.
    pub(super) unsafe fn new(
        context: &Arc<Context>,
        base: *mut u8,
        len: usize,
        kind: MemoryKind,
    ) -> Result<MappedMemory, RemoteError> {
        let kind = match kind {
            MemoryKind::Host => 0,
            MemoryKind::Cuda => 1,
        };
        let mut memory = null_mut();
        // SAFETY: the range is the caller's promise; the call writes one pointer.
        let status = unsafe { sacx_memory_map(context.0, base.cast(), len, kind, &mut memory) };
        check("register the region", status)?;
        Ok(MappedMemory { memory, context: Arc::clone(context) })
    }

    /// What a peer needs to reach the memory.
    pub(super) fn key(&self) -> Result<Vec<u8>, RemoteError> {
        let (mut key, mut len) = (null_mut(), 0);
        // SAFETY: both handles are alive; the call writes a buffer's address and length.
        let status = unsafe { sacx_memory_key(self.context.0, self.memory, &mut key, &mut len) };
        check("pack the region's key", status)?;
        // SAFETY: UCX made `len` readable bytes at `key`, which are copied and then given back.
        let bytes = unsafe { (*slice_from_raw_parts(key.cast::<u8>(), len)).to_vec() };
        // SAFETY: from `sacx_memory_key`, given back once.
        unsafe { sacx_key_release(key) };
        Ok(bytes)
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, once; the context is alive.
        unsafe { sacx_memory_unmap(self.context.0, self.memory) }
    }
}

/// A worker: for one thread at a time.
#[derive(Debug)]
pub(super) struct Worker {
    worker: *mut c_void,
    event_fd: RawFd,
    _context: Arc<Context>,
}

// SAFETY: made as SERIALIZED: any thread may use it, one at a time; it is not `Sync`.
unsafe impl Send for Worker {}

impl Worker {
    pub(super) fn new(context: &Arc<Context>) -> Result<Worker, RemoteError> {
        let (mut worker, mut event_fd) = (null_mut(), -1);
        // SAFETY: the context is alive; the call writes a pointer and a number.
        let status = unsafe { sacx_worker_create(context.0, &mut worker, &mut event_fd) };
        check("make a UCX worker", status)?;
        Ok(Worker { worker, event_fd, _context: Arc::clone(context) })
    }

    /// Readable on new events after a successful [`arm`](Self::arm).
    pub(super) fn event_fd(&self) -> RawFd {
        self.event_fd
    }

    pub(super) fn address(&self) -> Result<Vec<u8>, RemoteError> {
        let (mut address, mut len) = (null_mut(), 0);
        // SAFETY: the worker is alive; the call writes a buffer's address and length.
        let status = unsafe { sacx_worker_address(self.worker, &mut address, &mut len) };
        check("read the worker's address", status)?;
        // SAFETY: UCX made `len` readable bytes, which are copied and then given back.
        let bytes = unsafe { (*slice_from_raw_parts(address.cast::<u8>(), len)).to_vec() };
        // SAFETY: from `sacx_worker_address`, given back once.
        unsafe { sacx_worker_address_release(self.worker, address) };
        Ok(bytes)
    }

    /// True if it made progress.
    pub(super) fn progress(&self) -> bool {
        // SAFETY: the worker is alive, and not `Sync`: this thread is the only one.
        unsafe { sacx_worker_progress(self.worker) != 0 }
    }

    /// True when the event descriptor will signal new events; false when some are pending already.
    pub(super) fn arm(&self) -> Result<bool, RemoteError> {
        // SAFETY: as in `progress`.
        match unsafe { sacx_worker_arm(self.worker) } {
            1 => Ok(false),
            status => check("arm a UCX worker", status).map(|()| true),
        }
    }

    /// # Safety
    /// `handler` and what its argument points to live until the worker is dropped.
    pub(super) unsafe fn on_wake(&self, handler: *const WakeHandler) -> Result<(), RemoteError> {
        // SAFETY: the worker is alive; the handler is the caller's promise.
        check("set a UCX handler", unsafe { sacx_worker_on_wake(self.worker, handler) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: made in `new`, given back once. Its endpoint, if it had one, was closed by the
        // `Endpoint` that owned this worker.
        unsafe { sacx_worker_destroy(self.worker) }
    }
}

/// An operation in flight, to be tested until it is done.
#[derive(Debug)]
pub(super) struct Request(*mut c_void);

/// State of an operation.
pub(super) enum Progress {
    Done,
    UnderWay(Request),
    Failed(String),
}

impl Progress {
    fn of(status: c_int, request: *mut c_void) -> Progress {
        match status {
            0 => Progress::Done,
            1 => Progress::UnderWay(Request(request)),
            failed => Progress::Failed(status_text(failed)),
        }
    }

    /// Tests again.
    pub(super) fn again(self) -> Progress {
        let Progress::UnderWay(Request(request)) = self else { return self };
        // SAFETY: a live request: it is freed by the call that does not return "under way", and
        // `self` is consumed.
        Progress::of(unsafe { sacx_request_test(request) }, request)
    }
}

/// A connection to a peer's worker, with the key to its memory, and the worker it runs on.
#[derive(Debug)]
pub(super) struct Endpoint {
    endpoint: *mut c_void,
    remote_key: *mut c_void,
    worker: Worker,
    /// Below 0 once the peer is lost. Boxed, because UCX holds its address; declared after the
    /// worker, because UCX may write it until the worker is gone.
    failed: Box<AtomicI32>,
}

// SAFETY: used by one thread at a time, as its worker is.
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// `address` and `key` must come whole from a peer's [`Worker::address`] and
    /// [`MappedMemory::key`]: UCX parses them without a bound.
    pub(super) fn connect(
        worker: Worker,
        address: &[u8],
        key: &[u8],
    ) -> Result<Endpoint, RemoteError> {
        let failed = Box::new(AtomicI32::new(0));
        let mut made = Endpoint { endpoint: null_mut(), remote_key: null_mut(), worker, failed };
        // SAFETY: the address is whole (checked against its checksum); `failed` lives in a box
        // until the endpoint is closed in `drop`.
        let status = unsafe {
            sacx_endpoint_create(
                made.worker.worker,
                address.as_ptr().cast(),
                made.failed.as_ptr(),
                &mut made.endpoint,
            )
        };
        check("make a UCX endpoint", status)?;
        // SAFETY: the endpoint is alive and the key whole; the call writes one pointer.
        let status = unsafe {
            sacx_remote_key_unpack(made.endpoint, key.as_ptr().cast(), &mut made.remote_key)
        };
        check("unpack the region's key", status)?;
        Ok(made)
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Why the peer is lost, if it is.
    pub(super) fn failure(&self) -> Option<String> {
        let status = self.failed.load(Ordering::Relaxed);
        (status != 0).then(|| status_text(status))
    }

    /// Names of the transports in use, comma-separated; empty if UCX does not report them.
    pub(super) fn transports(&self) -> String {
        let mut names = [0u8; NAMES_BYTES];
        // SAFETY: the call writes at most `len` bytes, the last of them NUL.
        unsafe {
            sacx_endpoint_transports(self.endpoint, names.as_mut_ptr().cast(), names.len());
        }
        let names = CStr::from_bytes_until_nul(&names).unwrap_or_default();
        names.to_string_lossy().into_owned()
    }

    /// # Safety
    /// `len` bytes at `local` stay readable and unchanged until the operation is done or this
    /// endpoint dropped.
    pub(super) unsafe fn put(&self, local: *const u8, len: usize, remote: u64) -> Progress {
        let mut request = null_mut();
        // SAFETY: endpoint and key are alive, this is the worker's only thread; the local memory
        // is the caller's promise, the remote one is checked by the caller and by the NIC.
        let status = unsafe {
            sacx_put(self.endpoint, local.cast(), len, remote, self.remote_key, &mut request)
        };
        Progress::of(status, request)
    }

    /// # Safety
    /// `len` bytes at `local` stay writable, and are not read, until the operation is done or
    /// this endpoint dropped.
    pub(super) unsafe fn get(&self, local: *mut u8, len: usize, remote: u64) -> Progress {
        let mut request = null_mut();
        // SAFETY: as in `put`.
        let status = unsafe {
            sacx_get(self.endpoint, local.cast(), len, remote, self.remote_key, &mut request)
        };
        Progress::of(status, request)
    }

    /// Adds `local[0]`; `local[1]` becomes the previous value.
    ///
    /// # Safety
    /// As for [`get`](Self::get), for two words.
    pub(super) unsafe fn fetch_add_u32(&self, local: *mut u32, remote: u64) -> Progress {
        let mut request = null_mut();
        // SAFETY: as in `put`.
        let status = unsafe {
            sacx_fetch_add_u32(self.endpoint, local, remote, self.remote_key, &mut request)
        };
        Progress::of(status, request)
    }

    /// # Safety
    /// As for [`put`](Self::put), for one word.
    pub(super) unsafe fn wake(&self, at: *const u64) -> Progress {
        let mut request = null_mut();
        // SAFETY: as in `put`.
        let status = unsafe { sacx_wake(self.endpoint, at, &mut request) };
        Progress::of(status, request)
    }

    /// Orders all earlier operations before all later ones.
    pub(super) fn fence(&self) -> Progress {
        // SAFETY: the worker is alive, and this is its only thread.
        Progress::of(unsafe { sacx_worker_fence(self.worker.worker) }, null_mut())
    }

    /// Done once the peer has done all operations so far.
    pub(super) fn flush(&self) -> Progress {
        let mut request = null_mut();
        // SAFETY: as in `fence`.
        let status = unsafe { sacx_flush(self.endpoint, &mut request) };
        Progress::of(status, request)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.endpoint.is_null() {
            return;
        }
        let mut request = null_mut();
        // SAFETY: made in `connect`, closed once; the worker is still alive.
        let status = unsafe { sacx_endpoint_close(self.endpoint, &mut request) };
        let mut closing = Progress::of(status, request);
        let began = Instant::now();
        while let Progress::UnderWay(_) = closing {
            if began.elapsed() > CLOSE_TIMEOUT {
                break; // the worker, which goes next, takes the request with it
            }
            self.worker.progress();
            closing = closing.again();
        }
        if !self.remote_key.is_null() {
            // SAFETY: unpacked in `connect`, given back once, after the operations that used it and
            // before the worker.
            unsafe { sacx_remote_key_destroy(self.remote_key) };
        }
    }
}
