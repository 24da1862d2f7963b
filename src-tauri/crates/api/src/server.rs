//! The local server that the window can open.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::ApiError;

/// The local server of the window as it is now. What it should be is among the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ServerState {
    /// Where programs of this computer reach it; none while it does not run.
    pub address: Option<String>,
    /// Where other computers of the network reach it; none where they may not, and where there is no network.
    pub network: Option<String>,
    /// Why it does not run although it should.
    pub problem: Option<ApiError>,
    /// The first digits of the key. The whole is asked for when it is copied.
    pub key_begins: String,
}
