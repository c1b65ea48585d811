//! llama.cpp's tokenizer, through the small library that run.sh builds next to it.

use std::ffi::{CString, c_char, c_int, c_void};

use libloading::Library;

type Open = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Tokenize = unsafe extern "C" fn(*mut c_void, *const c_char, c_int, *mut u32, c_int) -> c_int;

/// A vocabulary that llama.cpp has loaded.
pub struct Llama {
    handle: *mut c_void,
    tokenize: Tokenize,
    _library: Library,
}

impl Llama {
    /// None if the variables of run.sh are not set.
    pub fn open() -> Option<Self> {
        let library = std::env::var_os("SACCADE_LLAMA_SHIM")?;
        let model = CString::new(std::env::var("SACCADE_LLAMA_VOCABULARY").ok()?).ok()?;
        // SAFETY: the library is the one of shim.cpp, whose functions have these types.
        unsafe {
            let library = Library::new(library).expect("the shim loads");
            let open: Open = *library.get(b"shim_open").expect("shim_open");
            let tokenize: Tokenize = *library.get(b"shim_tokenize").expect("shim_tokenize");
            let handle = open(model.as_ptr());
            assert!(!handle.is_null(), "llama.cpp cannot read the vocabulary");
            Some(Self { handle, tokenize, _library: library })
        }
    }

    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = vec![0u32; text.len() + 8];
        let (len, room) = (text.len() as c_int, ids.len() as c_int);
        // SAFETY: the pointers are valid for the lengths that go with them.
        let count = unsafe {
            (self.tokenize)(self.handle, text.as_ptr().cast(), len, ids.as_mut_ptr(), room)
        };
        ids.truncate(usize::try_from(count).expect("there is room"));
        ids
    }
}
