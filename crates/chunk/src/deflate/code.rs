//! Canonical prefix codes, as Deflate has them: lengths say everything.

/// Symbols of the largest alphabet.
pub(super) const MAX_SYMBOLS: usize = 288;
const MAX_LENGTH: usize = 15;

/// Lengths of a complete code that is best among those of at most `most` bits, or nearly so: an
/// unlimited code whose longest words are shortened, at the cost of the longest among the others.
/// At least two symbols are used, and at most `1 << most`; the others have length 0.
pub(super) fn lengths_of(frequencies: &[u32], most: usize, lengths: &mut [u8]) {
    let mut used = [(0, 0); MAX_SYMBOLS];
    let mut num_used = 0;
    for (symbol, frequency) in frequencies.iter().enumerate().filter(|(_, f)| **f > 0) {
        used[num_used] = (*frequency, symbol as u16);
        num_used += 1;
    }
    let used = &mut used[..num_used];
    used.sort_unstable();
    let mut counts = counts_of_depths(used, most);
    // How many words of `most` bits there is room for, and how many would be needed.
    let needed = |counts: &[usize]| (1..=most).map(|l| counts[l] << (most - l)).sum::<usize>();
    for _ in 1 << most..needed(&counts) {
        // A word moves below the longest one that still can have two below it.
        let above = (1..most).rev().find(|length| counts[*length] > 0);
        let above = above.expect("there are fewer symbols than words");
        counts[most] -= 1;
        counts[above] -= 1;
        counts[above + 1] += 2;
    }
    let longest_first = (1..=most).rev().flat_map(|l| std::iter::repeat_n(l as u8, counts[l]));
    for ((_, symbol), length) in used.iter().zip(longest_first) {
        lengths[usize::from(*symbol)] = length;
    }
}

/// Leaves of the Huffman tree by depth; leaves that are too deep count at `most`. `used` ascends.
fn counts_of_depths(used: &[(u32, u16)], most: usize) -> [usize; MAX_LENGTH + 1] {
    let num_nodes = 2 * used.len() - 1;
    let mut weights = [0_u64; 2 * MAX_SYMBOLS];
    let mut parents = [0_usize; 2 * MAX_SYMBOLS];
    for (weight, (frequency, _)) in weights.iter_mut().zip(used) {
        *weight = u64::from(*frequency);
    }
    // Inner nodes ascend as well: the smallest node is the next leaf or the next inner node.
    let (mut leaf, mut inner) = (0, used.len());
    for node in used.len()..num_nodes {
        for _ in 0..2 {
            let is_leaf = leaf < used.len() && (inner == node || weights[leaf] <= weights[inner]);
            let smallest = if is_leaf { &mut leaf } else { &mut inner };
            weights[node] += weights[*smallest];
            parents[*smallest] = node;
            *smallest += 1;
        }
    }
    let mut depths = [0; 2 * MAX_SYMBOLS];
    let mut counts = [0; MAX_LENGTH + 1];
    for node in (0..num_nodes - 1).rev() {
        depths[node] = depths[parents[node]] + 1;
        if node < used.len() {
            counts[depths[node].min(most)] += 1;
        }
    }
    counts
}

/// Calls `word` with each symbol, its word (first bit lowest) and its length, shortest first.
/// None: the code is not complete, or longer than `most`.
pub(super) fn words(
    lengths: &[u8],
    most: usize,
    mut word: impl FnMut(usize, usize, usize),
) -> Option<()> {
    let mut counts = [0_usize; MAX_LENGTH + 1];
    lengths.iter().for_each(|length| counts[usize::from(*length)] += 1);
    counts[0] = 0;
    if !is_complete(&counts) || counts[most + 1..].iter().any(|count| *count > 0) {
        return None;
    }
    let mut next = [0; MAX_LENGTH + 2];
    for length in 1..=MAX_LENGTH {
        next[length + 1] = next[length] + counts[length];
    }
    let mut sorted = [0_u16; MAX_SYMBOLS];
    for (symbol, length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
        let at = &mut next[usize::from(*length)];
        sorted[*at] = symbol as u16;
        *at += 1;
    }
    let mut code = 0_usize;
    for symbol in &sorted[..next[MAX_LENGTH]] {
        let length = usize::from(lengths[usize::from(*symbol)]);
        word(usize::from(*symbol), code, length);
        // Adds one at the far end: the highest zero becomes one, and the ones above it zeros. A
        // longer word goes on with zeros.
        let zeros = !code & ((1 << length) - 1);
        if zeros > 0 {
            let highest = 1 << zeros.ilog2();
            code = code & (highest - 1) | highest;
        }
    }
    Some(())
}

/// Every sequence of bits is a sequence of words.
fn is_complete(counts: &[usize; MAX_LENGTH + 1]) -> bool {
    let used: usize = (1..=MAX_LENGTH).map(|l| counts[l] << (MAX_LENGTH - l)).sum();
    used == 1 << MAX_LENGTH
}

/// What [`words`] demands, of a code that is not used.
pub(super) fn is_valid(lengths: &[u8]) -> bool {
    words(lengths, MAX_LENGTH, |_, _, _| ()).is_some()
}

/// Makes a table of what `entry` says of a symbol and its length, by the bits that come next.
/// None: the code is not complete, or has words that the table is too small for.
pub(super) fn fill(
    table: &mut [u16],
    lengths: &[u8],
    entry: impl Fn(usize, usize) -> u16,
) -> Option<()> {
    let bits = table.len().ilog2() as usize;
    // As long as words of `size` bits are written, that is all there is; then it is repeated.
    let mut size = 1;
    let mut grow = |table: &mut [u16], to: usize| {
        while size < to {
            table.copy_within(..size, size);
            size *= 2;
        }
    };
    words(lengths, bits, |symbol, word, length| {
        grow(table, 1 << length);
        table[word] = entry(symbol, length);
    })?;
    grow(table, 1 << bits);
    Some(())
}
