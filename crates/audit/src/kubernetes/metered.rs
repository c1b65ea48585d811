//! A reader that stops where one object gets too long to hold.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

/// Marks the error among the input's errors.
pub const TOO_LONG: &str = "object too long";

/// Counts bytes into `used`, which the reader that shares it sets back.
pub struct Metered<R> {
    pub input: R,
    pub used: Rc<Cell<usize>>,
    pub max: usize,
}

impl<R: BufRead> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.used.set(self.used.get() + count);
        if self.used.get() > self.max {
            return Err(io::Error::other(TOO_LONG));
        }
        Ok(count)
    }
}
