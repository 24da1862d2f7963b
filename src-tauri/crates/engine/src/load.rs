//! From a container to a network, with what of it is in memory.

use std::path::Path;
use std::sync::Arc;

use fastar_fst::Container;
use fastar_kernels::product::Arithmetic;

use crate::model::{Config, Embedding, Model};
use crate::pager::{Dense, Disk, Pager, Recording, Sizes, Source, hot, slot_bytes};
use crate::plan::{self, Need, Plan};
use crate::routing::Shape;
use crate::{Error, Options, Result};

/// The program itself, in bytes.
const PROGRAM: u64 = 24 << 20;
/// What a tokenizer takes in memory for each byte of its file.
const TOKENIZER: u64 = 8;

/// Loads the network. What lies in a file is read into memory of our own: dense weights whole, experts as far as there is room.
pub fn load(
    container: Arc<Container>,
    arithmetic: Arithmetic,
    options: &Options,
) -> Result<(Model, Plan, Option<Need>)> {
    let (layers, experts) = container.expert_counts();
    let disk = container
        .file()
        .map(Disk::new)
        .transpose()
        .map_err(|error| Error::Read(format!("The model file could not be read: {error}.")))?;
    let available = plan::available(Path::new("/"));
    let slot = slot_bytes(container.records().bytes()) as u64;
    let stays = Embedding::stays_in_file(&container).then_some(Embedding::NAME);
    let resident =
        |name: &str| Some(name) != stays && !name.starts_with("mtp.") && !name.ends_with("tid2eid");
    if disk.is_some() {
        let least = Need {
            dense: Dense::bytes_of(&container, resident),
            slot,
            fewest: Config::from_json(container.config())?.num_experts_per_tok,
            ..Need::default()
        };
        if let Some(refusal) = plan::refusal(available, &least) {
            return Err(Error::Memory(refusal));
        }
    }
    let dense = match &disk {
        Some(disk) => Some(Dense::read(&container, disk, resident)?),
        None => None,
    };
    let dense_bytes = dense.as_ref().map_or(0, |dense| dense.bytes().len() as u64);
    let mut model = Model::load(Arc::clone(&container), dense, arithmetic, options.reference)?;
    if let Some(context) = options.context {
        let most = &mut model.config.max_position_embeddings;
        *most = (*most).min(context.max(1));
    }
    let taken = model.config.num_experts_per_tok;
    let token_bytes = model.config.token_bytes();
    let chunk = |room: Option<u64>| plan::chunk(experts, taken, token_bytes, room);
    if let Some(path) = &options.trace {
        model.record(Some(recording(&model, path)?));
    }
    let Some(disk) = disk else {
        let all = layers * experts;
        let memory = Plan {
            slots: all,
            experts: all,
            chunk: chunk(None),
            ..Plan::default()
        };
        return Ok((model, memory, None));
    };
    let room = available.map(|now| now.bytes.saturating_sub(dense_bytes));
    let need = Need {
        dense: dense_bytes,
        conversations: model.conversation_bytes(),
        work: PROGRAM
            + TOKENIZER * container.tokenizer_bytes().unwrap_or(0)
            + token_bytes * chunk(room) as u64,
        slot,
        experts: layers * experts,
        fewest: taken,
    };
    let memory = Plan {
        chunk: chunk(room),
        ..plan::plan(available, &need, options.cache_bytes)
    };
    tracing::info!(
        slots = memory.slots,
        cache = memory.cache_bytes,
        dense = dense_bytes,
        direct = disk.is_direct(),
        "{}",
        memory.sentence()
    );
    let sizes = Sizes {
        layers,
        experts,
        taken,
    };
    let records = container.records().clone();
    let source: Box<dyn Source> = Box::new(disk);
    let pager = Pager::new(
        records,
        source,
        sizes,
        memory.slots,
        !options.without_guesses,
    )?;
    if let Some(folder) = &options.hot_lists {
        let list = hot::load(folder, container.identity(), layers * experts);
        pager.warm(&list);
    }
    model.page(pager);
    Ok((model, memory, Some(need)))
}

/// A recording of which experts the tokens of a model take, in a new file.
pub fn recording(model: &Model, path: &Path) -> Result<Recording> {
    let (layers, experts) = model.container().expert_counts();
    let shape = Shape {
        layers,
        experts,
        taken: model.config.num_experts_per_tok,
    };
    Recording::new(path, shape, model.container().identity())
}
