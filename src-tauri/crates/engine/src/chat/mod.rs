//! From messages to token ids and from token ids to text.

mod encode;
mod stream;
mod tokenizer;

pub(crate) use encode::encode;
pub use encode::{Message, Role};
pub(crate) use stream::TextStream;
pub(crate) use tokenizer::ChatTokenizer;
