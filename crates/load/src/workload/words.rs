//! Text of a known number of words, about one token each.

use rand::RngExt;
use rand_pcg::Pcg64;

/// Short, common words: with a space before them, each is one token of the usual vocabularies.
const WORDS: [&str; 128] = [
    "the", "of", "and", "to", "in", "is", "was", "for", "that", "with", "as", "his", "he", "be",
    "not", "by", "but", "have", "you", "which", "are", "on", "or", "her", "had", "at", "from",
    "this", "my", "they", "all", "their", "an", "she", "there", "has", "were", "me", "been", "him",
    "one", "so", "if", "more", "no", "would", "who", "what", "when", "will", "said", "out", "your",
    "up", "some", "them", "may", "very", "into", "than", "any", "man", "can", "other", "its",
    "time", "only", "could", "then", "now", "these", "two", "do", "our", "about", "well", "also",
    "over", "such", "should", "must", "made", "like", "did", "after", "upon", "good", "see",
    "great", "how", "before", "much", "where", "first", "day", "us", "men", "many", "own", "here",
    "most", "life", "come", "know", "say", "long", "little", "way", "make", "too", "down", "old",
    "back", "through", "work", "get", "without", "might", "while", "people", "years", "house",
    "same", "every", "world", "still", "part", "place",
];

/// Appends `count` words to `text`, each with a space before it but the very first.
pub(crate) fn append(text: &mut String, count: u32, rng: &mut Pcg64) {
    for _ in 0..count {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
    }
}
