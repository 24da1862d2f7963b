//! `fastar logits`: the engine's raw numbers for given token ids, for comparing it with other implementations.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use fastar_engine::diagnostic::{self, Logits};
use fastar_engine::{Cancel, Options};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize};

use crate::arguments::LogitsOptions;
use crate::failure::Failure;
use crate::{interrupt, model, prompt, terminal};

/// Computes the logits and writes them as a safetensors file, whole or not at all.
pub fn logits(options: &LogitsOptions) -> Result<(), Failure> {
    refuse_inputs_as_output(options)?;
    let ids = read_ids(&options.tokens)?;
    // For comparing: nothing is rounded that the model does not ask for. Which experts any ids need says nothing of what a person will ask, so no
    // list of them is kept.
    let arithmetic = Options {
        exact: true,
        reference: options.reference,
        ..Options::default()
    };
    interrupt::take_over_with(model::threads(&options.model))?;
    let model = model::open(&options.model, arithmetic)?;
    let cancel = Cancel::default();
    let computed = interrupt::stops(&cancel, || {
        diagnostic::logits_unless(
            &model.engine,
            &ids,
            options.chunk,
            options.decode.unwrap_or(0),
            &cancel,
        )
    });
    let outcome = match computed {
        Err(fastar_engine::Error::Cancelled) => {
            terminal::note("fastar: Stopped; nothing was written.");
            Err(Failure::Interrupted)
        }
        other => other
            .map_err(Failure::from)
            .and_then(|logits| write(&options.out, &encode(&logits)?)),
    };
    model.ended(outcome)
}

fn read_ids(path: &Path) -> Result<Vec<u32>, Failure> {
    let name = path.display();
    let file =
        File::open(path).map_err(|e| Failure::Error(format!("Could not open {name}: {e}.")))?;
    let text = prompt::whole(file, &name.to_string())?;
    serde_json::from_str(&text).map_err(|e| {
        Failure::Error(format!(
            "{name} is not a JSON list of token ids: it {}.",
            fastar_fst::json_problem(&e)
        ))
    })
}

/// Whether a file is empty or begins as one written here does: the length of a header, and a header.
fn is_safetensors(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    file.take(9).read_to_end(&mut begin)?;
    let header = begin.first_chunk().map(|n| u64::from_le_bytes(*n));
    let fits = header.is_some_and(|n| n.checked_add(8).is_some_and(|end| end <= length));
    Ok(begin.is_empty() || (fits && begin.get(8) == Some(&b'{')))
}

fn refuse_inputs_as_output(options: &LogitsOptions) -> Result<(), Failure> {
    if options.model.trace.as_ref() == Some(&options.out) {
        return Err(Failure::Usage(
            "--out and --trace are the same file; give each a name of its own.".into(),
        ));
    }
    let Ok(about) = fs::symlink_metadata(&options.out) else {
        return Ok(());
    };
    // As with --trace. A rename would replace a device or a pipe by a file.
    let odd = match about.file_type() {
        kind if kind.is_symlink() => Some("is a link"),
        kind if !kind.is_file() => Some("is not a regular file"),
        _ => None,
    };
    if let Some(odd) = odd {
        return Err(Failure::Error(format!(
            "{} {odd}; choose another name for --out.",
            options.out.display()
        )));
    }
    let out = fs::canonicalize(&options.out)
        .map_err(|e| Failure::Error(format!("Could not open {}: {e}.", options.out.display())))?;
    let model = model::file(
        options.model.model.as_deref(),
        options.model.model_dir.as_deref(),
    )?;
    let is_input = [Some(&options.tokens), model.as_ref()]
        .into_iter()
        .flatten()
        .any(|input| fs::canonicalize(input).is_ok_and(|input| input == out));
    if is_input {
        return Err(Failure::Usage(format!(
            "--out {} is one of the files to be read.",
            options.out.display()
        )));
    }
    if !is_safetensors(&out)
        .map_err(|e| Failure::Error(format!("Could not open {}: {e}.", options.out.display())))?
    {
        return Err(Failure::Error(format!(
            "{} is a file of another kind, which would be lost; choose another name for --out.",
            options.out.display()
        )));
    }
    Ok(())
}

/// `logits` [positions, vocab]; after decoding also `greedy` [steps] and `decode_logits` [steps, vocab].
fn encode(logits: &Logits) -> Result<Vec<u8>, Failure> {
    let floats = |values: &[f32]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let vocab = logits.vocab;
    let steps = logits.greedy.len();
    let greedy: Vec<u8> = logits
        .greedy
        .iter()
        .flat_map(|&id| i64::from(id).to_le_bytes())
        .collect();
    let mut tensors = vec![(
        "logits",
        Dtype::F32,
        vec![logits.prefill.len() / vocab, vocab],
        floats(&logits.prefill),
    )];
    if steps > 0 {
        tensors.push(("greedy", Dtype::I64, vec![steps], greedy));
        tensors.push((
            "decode_logits",
            Dtype::F32,
            vec![steps, vocab],
            floats(&logits.decode),
        ));
    }
    tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            TensorView::new(*dtype, shape.clone(), bytes).map(|view| (*name, view))
        })
        .collect::<Result<Vec<_>, _>>()
        .and_then(|views| serialize(views, None))
        .map_err(|e| Failure::Error(format!("The logits could not be encoded: {e}.")))
}

fn write(out: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |e: std::io::Error| {
        let why = fastar_files::unwritten(&e);
        Failure::Error(format!("Could not write {}: {why}", out.display()))
    };
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".fastar-logits-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // As any new file: the umask decides.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder).map_err(failed)?;
    let begun = file.path().to_owned();
    interrupt::removes(&begun, || {
        file.write_all(bytes).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(out).map_err(|e| failed(e.error))?;
        Ok(())
    })
}
