//! Bytes to text while they come: whole characters only, in the middle and at the end.

/// Collects bytes and gives out every character as soon as it is whole.
#[derive(Debug, Default)]
pub(super) struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// Adds bytes; appends to `out` what has become whole. Bytes that can never become a character turn into U+FFFD.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (whole, after) = rest.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(whole).unwrap_or_default());
                    match error.error_len() {
                        // The last character is only begun.
                        None => {
                            rest = after;
                            break;
                        }
                        Some(bad) => {
                            out.push(char::REPLACEMENT_CHARACTER);
                            rest = &after[bad..];
                        }
                    }
                }
            }
        }
        let kept = rest.len();
        let from = self.pending.len() - kept;
        self.pending.drain(..from);
    }

    /// The end: a character that was only begun turns into U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_pieces(bytes: &[u8], size: usize) -> String {
        let (mut stream, mut out) = (TextStream::default(), String::new());
        for piece in bytes.chunks(size) {
            stream.push(piece, &mut out);
            assert!(
                !out.contains('\u{FFFD}') || String::from_utf8_lossy(bytes).contains('\u{FFFD}')
            );
        }
        stream.finish(&mut out);
        out
    }

    #[test]
    fn characters_cut_anywhere_come_out_whole() {
        let text = "a\u{e4}\u{4f60}\u{597d}\u{1f98a}\u{1f469}\u{200d}\u{1f680}z";
        for size in 1..=text.len() {
            assert_eq!(in_pieces(text.as_bytes(), size), text);
        }
    }

    /// The standard library's own lossy decoding is the independent judge.
    #[test]
    fn broken_bytes_become_replacement_characters_however_they_are_cut() {
        let cases: [&[u8]; 6] = [
            b"ab\xff\xfecd",
            b"\xe4\xbd",
            b"\xf0\x9f\xa6x",
            b"\xc0\x80",
            b"\xed\xa0\x80",
            b"ok\xe4",
        ];
        for bytes in cases {
            for size in 1..=bytes.len() {
                assert_eq!(
                    in_pieces(bytes, size),
                    String::from_utf8_lossy(bytes),
                    "{bytes:?} by {size}"
                );
            }
        }
    }
}
