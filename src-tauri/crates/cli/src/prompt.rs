//! Reading a prompt from the command line, a file or stdin.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::arguments::PromptOptions;
use crate::failure::Failure;

/// Far more text than any context holds.
const MOST_BYTES: u64 = 64 << 20;

/// The prompt's text. One newline at the end of a file or of stdin is not part of it.
pub fn read(options: &PromptOptions) -> Result<String, Failure> {
    let text = match (&options.prompt, &options.prompt_file) {
        (Some(text), _) if text != "-" => text.clone(),
        (None, Some(path)) if path.as_os_str() != "-" => {
            let name = path.display().to_string();
            whole(open(path)?, &name)?
        }
        _ => whole(io::stdin().lock(), "stdin")?,
    };
    if text.trim().is_empty() {
        return Err(Failure::Error("The prompt is empty.".into()));
    }
    Ok(text)
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|e| Failure::Error(format!("Could not open {}: {e}.", path.display())))
}

/// All of a source as text.
pub fn whole(source: impl Read, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    source
        .take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Failure::Error(format!("Could not read {name}: {e}.")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Failure::Error(format!(
            "{name} is longer than {} MiB, more than any model can read.",
            MOST_BYTES >> 20
        )));
    }
    let mut text = String::from_utf8(bytes).map_err(|e| {
        Failure::Error(format!(
            "{name} is not UTF-8 text: byte {} cannot be read.",
            e.utf8_error().valid_up_to() + 1
        ))
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
