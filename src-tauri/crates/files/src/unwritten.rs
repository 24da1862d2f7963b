//! Why a file could not be written, in the words that all of FaStar has for it.

use std::io::{Error, ErrorKind};

/// Why, and what to do about it: what follows "Could not write FILE: ", to the end of the sentence or of the next one.
pub fn unwritten(error: &Error) -> String {
    unwritten_with(error, longest())
}

fn unwritten_with(error: &Error, longest: Option<u64>) -> String {
    let why = match error.kind() {
        ErrorKind::StorageFull => "the disk is full",
        ErrorKind::QuotaExceeded => "the disk quota is used up",
        ErrorKind::FileTooLarge => {
            return match longest {
                Some(most) => format!(
                    "a file of this program may have no more than {most} bytes. Raise the limit (`ulimit -f unlimited`) and try again."
                ),
                None => {
                    "its file system does not allow files this large. Choose a folder on another one.".to_owned()
                }
            };
        }
        _ => return format!("{error}."),
    };
    format!("{why}. Free some space or choose another folder.")
}

/// Bytes a file of this program may have (`ulimit -f`).
#[cfg(unix)]
fn longest() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

#[cfg(not(unix))]
fn longest() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_limits_a_file_is_named_with_what_to_do() {
        let told = |kind: ErrorKind, longest| unwritten_with(&kind.into(), longest);
        assert_eq!(
            told(ErrorKind::FileTooLarge, Some(51_200)),
            "a file of this program may have no more than 51200 bytes. Raise the limit (`ulimit -f unlimited`) and try again."
        );
        // Where no limit is set it is the file system, as with files of 4 GiB on FAT.
        assert_eq!(
            told(ErrorKind::FileTooLarge, None),
            "its file system does not allow files this large. Choose a folder on another one."
        );
        for (kind, why) in [
            (ErrorKind::StorageFull, "the disk is full"),
            (ErrorKind::QuotaExceeded, "the disk quota is used up"),
        ] {
            assert_eq!(
                told(kind, Some(1)),
                format!("{why}. Free some space or choose another folder.")
            );
        }
        let other = Error::other("it is a link; move it away");
        assert_eq!(unwritten(&other), "it is a link; move it away.");
    }
}
