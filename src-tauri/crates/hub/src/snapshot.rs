//! What a repository holds at one commit. Names and sizes come from a stranger and are checked before anybody uses them.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Longest name of a file or folder that leaves room for the names of partial files (file systems allow 255 bytes).
const LONGEST_NAME: usize = 230;
const LONGEST_PATH: usize = 1024;
/// No file of a model is larger than 16 TiB.
const LARGEST_FILE: u64 = 1 << 44;

/// A repository at one commit. Save it with the job: a resumed download then asks for the same bytes, whatever the branch has become.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// OWNER/NAME.
    pub repo: String,
    /// The commit that the branch or tag meant when it was asked.
    pub revision: String,
    /// Every file, in the hub's order.
    pub files: Vec<RemoteFile>,
}

/// One file at one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFile {
    /// OWNER/NAME.
    pub repo: String,
    /// Commit.
    pub revision: String,
    /// Relative, with `/`, without `..`.
    pub path: String,
    /// Length.
    pub bytes: u64,
    /// Of the whole file, 64 lower-case hexadecimal digits; the hub knows it for large files only.
    pub sha256: Option<String>,
    /// Git's name of the contents, the sha1 of `"blob LENGTH\0"` and the whole file, 40 lower-case hexadecimal digits; the hub knows it for the
    /// files that have no sha256. Absent in snapshots that were saved before it was kept.
    #[serde(default)]
    pub git_oid: Option<String>,
}

impl Snapshot {
    /// The file at `path`.
    ///
    /// # Errors
    /// [`Error::NotFound`] names the file and the repository.
    pub fn file(&self, path: &str) -> Result<&RemoteFile> {
        self.files
            .iter()
            .find(|file| file.path == path)
            .ok_or_else(|| Error::NotFound {
                host: self.repo.clone(),
                what: format!("file {:?} at revision {}", shortened(path), self.revision),
            })
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl RemoteFile {
    /// Refuses a file whose path would leave its folder, hide, or not fit a file system: for one that was saved, where somebody may have
    /// changed it.
    ///
    /// # Errors
    /// [`Error::HostilePath`] says what is wrong with it.
    pub fn check(&self) -> Result<()> {
        check(self)
    }
}

/// Refuses what would leave the folder, hide, or not fit a file system. A saved snapshot is checked again before it is used.
pub(crate) fn check(file: &RemoteFile) -> Result<()> {
    let problem = path_problem(&file.path)
        .or_else(|| (file.bytes > LARGEST_FILE).then_some("claims to be larger than 16 TiB"));
    match problem {
        None => Ok(()),
        Some(problem) => Err(Error::HostilePath {
            repo: file.repo.clone(),
            path: shortened(&file.path),
            problem,
        }),
    }
}

fn path_problem(path: &str) -> Option<&'static str> {
    if path.is_empty() || path.starts_with('/') {
        return Some("is not a path inside the repository");
    }
    if path.len() > LONGEST_PATH || path.split('/').any(|name| name.len() > LONGEST_NAME) {
        return Some("is too long for a file system");
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Some("contains a backslash or control characters");
    }
    if path.split('/').any(|name| matches!(name, "" | "." | "..")) {
        return Some("would leave its folder");
    }
    if path.ends_with(".partial") || path.ends_with(".blocks") {
        return Some("has an ending that is kept for unfinished downloads");
    }
    None
}

/// Whether this can be the name of a repository: OWNER/NAME or NAME.
///
/// # Errors
/// A sentence where it cannot.
pub fn check_repo(repo: &str) -> Result<()> {
    let part = |part: &str| {
        (1..=96).contains(&part.len())
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            && !part.starts_with('.')
            && !part.contains("..")
    };
    if repo.split('/').count() <= 2 && repo.split('/').all(part) {
        Ok(())
    } else {
        Err(Error::Name {
            name: shortened(repo),
            what: "a repository",
        })
    }
}

/// Whether this can be a branch, tag or commit.
///
/// # Errors
/// A sentence where it cannot.
pub fn check_revision(revision: &str) -> Result<()> {
    let fits = (1..=200).contains(&revision.len())
        && !revision
            .chars()
            .any(|c| c.is_control() || c.is_whitespace());
    if fits
        && !revision
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
    {
        Ok(())
    } else {
        Err(Error::Name {
            name: shortened(revision),
            what: "a revision",
        })
    }
}

/// The answer to `api/models/REPO/revision/REVISION`.
#[derive(Deserialize)]
pub(crate) struct Info {
    pub(crate) sha: String,
}

/// One line of `api/models/REPO/tree/COMMIT`.
#[derive(Deserialize)]
pub(crate) struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    /// Anything that is no oid counts as none.
    #[serde(default)]
    oid: serde_json::Value,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: Option<u64>,
}

impl Entry {
    /// `None` for folders.
    pub(crate) fn file(self, repo: &str, revision: &str) -> Result<Option<RemoteFile>> {
        if self.kind != "file" {
            return Ok(None);
        }
        // That of a large file names the pointer which lies in git instead of it.
        let git_oid = match self.lfs {
            None => self.oid.as_str().and_then(|oid| digits(oid, 40)),
            Some(_) => None,
        };
        let file = RemoteFile {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
            path: self.path,
            bytes: self
                .lfs
                .as_ref()
                .and_then(|lfs| lfs.size)
                .unwrap_or(self.size),
            sha256: self.lfs.and_then(|lfs| sha256(&lfs.oid)),
            git_oid,
        };
        check(&file)?;
        Ok(Some(file))
    }
}

/// A sha256 out of the hub's spellings: quoted, weak, with a prefix.
pub(crate) fn sha256(text: &str) -> Option<String> {
    let text = clean_etag(text);
    let text = text.strip_prefix("sha256:").unwrap_or(text);
    digits(text, 64)
}

/// `count` hexadecimal digits and nothing else, in lower case.
fn digits(text: &str, count: usize) -> Option<String> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| text.to_ascii_lowercase())
}

/// An ETag without quotes and weakness.
pub(crate) fn clean_etag(text: &str) -> &str {
    text.trim().trim_start_matches("W/").trim_matches('"')
}

pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}...", &text[..cut]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_folder_or_fit_no_file_system_are_refused() {
        let long = "a".repeat(231);
        let deep = "a/".repeat(600) + "b";
        for hostile in [
            "",
            "/etc/passwd",
            "../up",
            "a/../../b",
            "a//b",
            "./a",
            "a/.",
            "a\\b",
            "a\nb",
            "nul\0",
            "x.partial",
            ".x.blocks",
            &long,
            &deep,
        ] {
            assert!(path_problem(hostile).is_some(), "{hostile:?}");
        }
        for good in [
            "config.json",
            "encoding/x y.py",
            "..a",
            "田中/🙂.txt",
            ".gitattributes",
        ] {
            assert_eq!(path_problem(good), None, "{good:?}");
        }
        for wrong in ["", "a/b/c", "../a", "a/..", "a b/c", ".a/b", "a/"] {
            assert!(check_repo(wrong).is_err(), "{wrong:?}");
        }
        assert!(check_repo("deepseek-ai/DeepSeek-V4-Flash-0731").is_ok());
        assert!(check_revision("refs/pr/1").is_ok() && check_revision("a/../b").is_err());
    }

    #[test]
    fn etags_are_cleaned_of_quotes_and_weakness() {
        let digits = "0123456789abcdef".repeat(4);
        for spelling in [
            digits.clone(),
            format!("\"{digits}\""),
            format!("W/\"{digits}\""),
            format!("sha256:{digits}"),
            digits.to_uppercase(),
        ] {
            assert_eq!(sha256(&spelling).as_deref(), Some(digits.as_str()));
        }
        assert_eq!(sha256("W/\"abc/def\""), None);
    }
}
