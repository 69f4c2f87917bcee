use expect_test::expect;

use super::*;
use crate::export::samples;
use crate::lifecycle::Standing;

/// The lines that begin with one of these words, without what this machine makes of itself.
fn lines(text: &str, words: &[&str]) -> String {
    let wanted = |line: &&str| words.iter().any(|word| line.starts_with(word));
    text.lines().filter(wanted).fold(String::new(), |all, line| all + line + "\n")
}
