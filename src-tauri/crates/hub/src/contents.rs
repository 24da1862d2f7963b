//! The hash of a whole file that the hub promises: sha256 of a large file, git's own name of a small one.

use std::fmt;

use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Digest, Sha256};

use crate::RemoteFile;

/// Takes a file's bytes in order and compares their hash with the promised one.
pub(crate) struct Contents<'a> {
    kind: &'static str,
    promised: &'a str,
    hash: Box<dyn DynDigest>,
}

/// The promised hash of a whole file and that of its bytes.
pub(crate) struct Compared {
    /// What was compared, for people.
    pub(crate) kind: &'static str,
    pub(crate) promised: String,
    pub(crate) found: String,
}

impl Compared {
    pub(crate) fn is_right(&self) -> bool {
        self.found == self.promised
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} instead of {}",
            self.kind, self.found, self.promised
        )
    }
}

impl<'a> Contents<'a> {
    /// `None` if the hub promises nothing but the length.
    pub(crate) fn of(file: &'a RemoteFile) -> Option<Self> {
        if let Some(promised) = &file.sha256 {
            return Some(Self {
                kind: "sha256",
                promised,
                hash: Box::new(Sha256::new()),
            });
        }
        let promised = file.git_oid.as_ref()?;
        let header = format!("blob {}\0", file.bytes);
        Some(Self {
            kind: "git blob sha1",
            promised,
            hash: Box::new(Sha1::new_with_prefix(header)),
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    pub(crate) fn compare(self) -> Compared {
        Compared {
            kind: self.kind,
            promised: self.promised.to_owned(),
            found: self
                .hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_that_the_hub_knows() {
        // From `git hash-object` and `sha256sum`.
        let empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        let hello = "ce013625030ba8dba906f756967f9e9ca394464a";
        let large = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        for (bytes, sha256, git_oid, kind, found) in [
            ("", None, Some("0"), "git blob sha1", empty),
            ("hello\n", None, Some(hello), "git blob sha1", hello),
            ("hello\n", Some(large), Some("0"), "sha256", large),
        ] {
            let file = RemoteFile {
                repo: "acme/tiny".into(),
                revision: "1".into(),
                path: "a".into(),
                bytes: bytes.len() as u64,
                sha256: sha256.map(str::to_owned),
                git_oid: git_oid.map(str::to_owned),
            };
            let mut contents = Contents::of(&file).unwrap();
            for byte in bytes.as_bytes() {
                contents.update(&[*byte]);
            }
            let compared = contents.compare();
            assert_eq!((compared.kind, compared.found.as_str()), (kind, found));
            let promised = sha256.or(git_oid);
            assert_eq!(compared.is_right(), promised == Some(found));
            let unknown = RemoteFile {
                sha256: None,
                git_oid: None,
                ..file
            };
            assert!(Contents::of(&unknown).is_none());
        }
    }
}
