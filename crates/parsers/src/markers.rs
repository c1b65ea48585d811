//! Fixed texts in a stream of characters.

/// Finds the first of several markers, and holds back only what may still become one. No marker is
/// the beginning of another one.
#[derive(Debug)]
pub struct Markers {
    list: &'static [&'static str],
    held: String,
}

impl Markers {
    /// A matcher for `list`.
    pub fn new(list: &'static [&'static str]) -> Self {
        Self { list, held: String::new() }
    }

    /// Takes a character. Those that are part of no marker go to `text`; the answer is the index of
    /// the marker that `c` completes.
    pub fn push(&mut self, c: char, mut text: impl FnMut(char)) -> Option<usize> {
        self.held.push(c);
        while !self.held.is_empty() {
            if let Some(found) = self.list.iter().position(|marker| *marker == self.held) {
                self.held.clear();
                return Some(found);
            }
            if self.list.iter().any(|marker| marker.starts_with(&self.held)) {
                return None;
            }
            text(self.held.remove(0));
        }
        None
    }

    /// What is held back, which is no marker after all.
    pub fn take_held(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// A marker by its index.
    pub fn text(&self, index: usize) -> &'static str {
        self.list[index]
    }

    /// Whether nothing is held back.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty()
    }
}
