//! What the network remembers of a sequence, and going back in it.
//!
//! Per layer: the latest KV rows, the projections of the latest tokens in each compressor, and all compressed rows and index keys. A few
//! positions back is a truncation. Further back the latest rows are gone, and a [`Snapshot`] brings them again; compressed rows are
//! never copied, for a prefix of them is what they were.

use super::Model;
use super::attention::AttentionState;
use super::history::History;

impl State {
    /// Compressed rows and index keys of every layer that has them, in a fixed order.
    pub fn compressed(&self) -> impl Iterator<Item = &[f32]> {
        let layers = self.layers.iter();
        layers
            .flat_map(|l| l.compressed.iter().chain(&l.index))
            .map(|c| c.rows.as_slice())
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        let histories = self.layers.iter().flat_map(AttentionState::histories);
        let compressed: usize = self.compressed().map(|rows| 4 * rows.len()).sum();
        histories.map(History::bytes).sum::<usize>() + compressed
    }
}

/// What the network remembers of a sequence.
pub struct State {
    /// Tokens fed.
    pub position: usize,
    pub(super) layers: Vec<AttentionState>,
}

/// The rows that going on from a position needs, apart from the compressed ones.
pub struct Snapshot {
    /// Where it was taken.
    pub position: usize,
    layers: Vec<Vec<History>>,
}

impl AttentionState {
    fn histories(&self) -> impl Iterator<Item = &History> {
        let compressors = self.compressed.iter().chain(&self.index);
        std::iter::once(&self.window).chain(compressors.flat_map(|c| [&c.kv, &c.score]))
    }

    fn histories_mut(&mut self) -> impl Iterator<Item = &mut History> {
        let compressors = self.compressed.iter_mut().chain(&mut self.index);
        std::iter::once(&mut self.window).chain(compressors.flat_map(|c| [&mut c.kv, &mut c.score]))
    }
}

impl Model {
    /// The state at the beginning of a sequence.
    pub fn state(&self) -> State {
        State {
            position: 0,
            layers: self
                .layers
                .iter()
                .map(|l| l.attention.state(&self.config))
                .collect(),
        }
    }

    /// Whether [`Model::truncate`] can go back to `position`.
    pub fn reaches(&self, position: usize, state: &State) -> bool {
        let mut all = state.layers.iter().flat_map(AttentionState::histories);
        position <= state.position && all.all(|h| h.reaches(position))
    }

    /// Goes back to `position`, which is within reach.
    pub fn truncate(&self, position: usize, state: &mut State) {
        for (block, layer) in self.layers.iter().zip(&mut state.layers) {
            block.attention.truncate(position, layer);
        }
        state.position = position;
    }

    /// About how many bytes a conversation of ordinary length takes, with its checkpoints.
    pub fn conversation_bytes(&self) -> u64 {
        /// Positions of a long conversation; whoever goes beyond uses what is left to the system.
        const POSITIONS: usize = 16_384;
        let fresh = self
            .snapshot(&self.state())
            .bytes()
            .max(self.state().bytes());
        let values: usize = self
            .compressed_values(POSITIONS.min(self.config.max_position_embeddings))
            .iter()
            .sum();
        (4 * values + crate::session::CHECKPOINTS * fresh) as u64
    }

    /// How many values [`State::compressed`] has in each layer at `position`.
    pub fn compressed_values(&self, position: usize) -> Vec<usize> {
        let layers = self.layers.iter();
        layers
            .flat_map(|l| l.attention.compressors())
            .map(|c| c.values_at(position))
            .collect()
    }

    /// The state of a saved snapshot and its compressed rows, which have the lengths of [`Model::compressed_values`].
    pub fn resume(&self, snapshot: &Snapshot, compressed: Vec<Vec<f32>>, state: &mut State) {
        let layers = state.layers.iter_mut();
        let compressors = layers.flat_map(|l| l.compressed.iter_mut().chain(&mut l.index));
        for (compressor, rows) in compressors.zip(compressed) {
            compressor.rows = rows;
        }
        self.restore(snapshot, state);
    }

    /// Remembers the state's position.
    pub fn snapshot(&self, state: &State) -> Snapshot {
        let layer = |l: &AttentionState| l.histories().map(History::snapshot).collect();
        Snapshot {
            position: state.position,
            layers: state.layers.iter().map(layer).collect(),
        }
    }

    /// Goes back to a snapshot. Its position lies on this very sequence, at or before the state's position.
    pub fn restore(&self, snapshot: &Snapshot, state: &mut State) {
        for (layer, kept) in state.layers.iter_mut().zip(&snapshot.layers) {
            for (history, kept) in layer.histories_mut().zip(kept) {
                history.clone_from(kept);
            }
        }
        self.truncate(snapshot.position, state);
    }
}

impl Snapshot {
    /// Its rows, in a fixed order.
    pub fn histories(&self) -> impl Iterator<Item = &History> {
        self.layers.iter().flatten()
    }

    /// The same, to be filled.
    pub fn histories_mut(&mut self) -> impl Iterator<Item = &mut History> {
        self.layers.iter_mut().flatten()
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.histories().map(History::bytes).sum()
    }
}
