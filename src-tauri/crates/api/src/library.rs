//! Models on the disk, and models that can be fetched.
//!
//! A model file is named by its file name in the model folder, never by a path: which folder that is, only a dialog of the desktop
//! or the command line decides.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::ApiError;

/// Everything the models screen shows besides the jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Library {
    /// The folder with the model files.
    pub folder: String,
    /// Space left there; none when the system does not say.
    #[ts(type = "number | null")]
    pub free_bytes: Option<u64>,
    /// What is in the folder, by name.
    pub files: Vec<ModelFile>,
    /// What can be fetched, the recommended one first.
    pub catalogue: Vec<CatalogueEntry>,
}

/// A model on the disk: its file with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ModelFile {
    /// File name in the model folder; names it in every request.
    pub file: String,
    /// Name for people.
    pub name: String,
    /// Bytes on the disk, temporary files included: what deleting it frees.
    #[ts(type = "number")]
    pub disk_bytes: u64,
    /// Of a model that is a link: the size of the file it leads to, which deleting does not free.
    #[ts(type = "number | null")]
    pub linked_bytes: Option<u64>,
    /// And where that is.
    pub linked_to: Option<String>,
    /// Whether it can be used.
    pub condition: Condition,
    /// It is the model in use, or the remembered one.
    pub in_use: bool,
    /// Repository and revision it was made from, where the file says so.
    pub source: Option<String>,
}

/// Whether a model on the disk can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum Condition {
    /// Its structure is right; whether every byte is, a check tells.
    Whole,
    /// A download that has not come to its end.
    Incomplete {
        /// Bytes there are.
        #[ts(type = "number")]
        done_bytes: u64,
        /// Bytes there will be; none when what is left does not say.
        #[ts(type = "number | null")]
        total_bytes: Option<u64>,
        /// Whether it can be gone on with.
        resumable: bool,
    },
    /// Cannot be used as it is.
    Unusable {
        /// Why, and what to do.
        error: ApiError,
    },
}

/// A model that can be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct CatalogueEntry {
    /// Names it in a request.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What it is, in one or two sentences.
    pub about: String,
    /// Repository on the hub.
    pub repository: String,
    /// File name it gets in the model folder.
    pub file: String,
    /// Bytes to fetch, drafter included.
    #[ts(type = "number")]
    pub download_bytes: u64,
    /// Bytes on the disk once it is there.
    #[ts(type = "number")]
    pub disk_bytes: u64,
    /// Most bytes on the disk while it is being made.
    #[ts(type = "number")]
    pub peak_bytes: u64,
    /// Of these, what the drafter (for speculative decoding) takes; none when it cannot be left out.
    #[ts(type = "number | null")]
    pub drafter_bytes: Option<u64>,
    /// The sizes are estimates: the hub was not seen.
    pub approximate: bool,
}

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct DownloadRequest {
    /// The entry of the catalogue.
    pub entry: String,
    /// With its drafter, where it has one.
    pub drafter: bool,
}
