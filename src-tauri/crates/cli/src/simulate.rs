//! `fastar simulate`: what caches of several sizes would have made of a routing trace.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use fastar_engine::routing::{Rates, Synthetic, Trace, TraceError, compare, save};

use crate::arguments::{Kind, SimulateOptions, Slots};
use crate::failure::Failure;
use crate::terminal::{Answers, note};

/// Parts of all experts that are tried where nothing else is asked for.
const SIZES: [f64; 7] = [4.5, 10.0, 15.3, 25.0, 33.0, 50.0, 75.0];
/// From so many tokens on, the rates of an invented trace of Flash are within 0.03 of those of a thousand tokens. With fewer a cache that holds
/// whatever came looks as good as any.
const TELLING: usize = 100;

/// Replays a trace, or a synthetic one, and prints hit rates.
pub fn simulate(options: &SimulateOptions) -> Result<(), Failure> {
    let trace = match &options.trace {
        Some(path) => read(path)?,
        None => {
            let tokens = options.tokens.unwrap_or(600);
            let kind = match options.synthetic.unwrap_or(Kind::Default) {
                Kind::Default => Synthetic::default(),
                Kind::Skewed => Synthetic::skewed(),
            };
            Synthetic { tokens, ..kind }.trace()
        }
    };
    if trace.cut {
        note(&format!(
            "fastar: The trace ends within a token; its {} whole ones are used.",
            trace.tokens()
        ));
    }
    if trace.longer {
        note(&format!(
            "fastar: The trace is longer than what is replayed; its first {} tokens are used.",
            trace.tokens()
        ));
    }
    let steps = trace.steps().len();
    if steps < 2 {
        return Err(Failure::Error(format!(
            "The trace has {steps} steps (a token of an answer, or a chunk of a prompt): too few, for the first half fills the cache and the second is counted."
        )));
    }
    if let Some(path) = &options.save {
        save(&trace, path)?;
    }
    if trace.tokens() < TELLING {
        note(&format!(
            "fastar: A trace of {} tokens says little about any cache; from {TELLING} tokens on the numbers mean something.",
            trace.tokens()
        ));
    }
    let all = trace.shape.layers * trace.shape.experts;
    let asked: Vec<usize> = match options.slots.as_slice() {
        [] => SIZES
            .iter()
            .map(|part| Slots::Part(*part).of(all))
            .collect(),
        given => given.iter().map(|slots| slots.of(all)).collect(),
    };
    let rates = compare(&trace, &sizes(&asked, trace.shape.taken, all));
    let text = match options.json {
        true => json(&trace, &rates)?,
        false => table(&trace, &rates),
    };
    Answers::new().write(&text)
}

/// Those of the sizes asked for that there can be, each once.
fn sizes(asked: &[usize], fewest: usize, all: usize) -> Vec<usize> {
    if let Some(size) = asked.iter().find(|size| **size > all) {
        note(&format!(
            "fastar: There are {all} experts; instead of {size}, {all} slots are tried."
        ));
    }
    if let Some(size) = asked.iter().find(|size| **size < fewest) {
        note(&format!(
            "fastar: A layer takes {fewest} experts at once; instead of {size}, {fewest} slots are tried."
        ));
    }
    let mut sizes = Vec::new();
    for size in asked.iter().map(|size| (*size).clamp(fewest, all)) {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    sizes
}

fn read(path: &Path) -> Result<Trace, Failure> {
    let failed =
        |e: std::io::Error| Failure::Error(format!("Could not read {}: {e}.", path.display()));
    let about = std::fs::metadata(path).map_err(failed)?;
    if about.is_dir() {
        return Err(Failure::Error(format!("{} is a folder.", path.display())));
    }
    let file = File::open(path).map_err(failed)?;
    Trace::read(BufReader::new(file)).map_err(|error| match error {
        TraceError::Io(e) => failed(e),
        TraceError::Damaged(what) => Failure::Error(format!(
            "{} {what}. Record one with `fastar run --trace FILE`.",
            path.display()
        )),
    })
}

fn json(trace: &Trace, rates: &[Rates]) -> Result<String, Failure> {
    let value = serde_json::json!({
        "tokens": trace.tokens(),
        "layers": trace.shape.layers,
        "experts": trace.shape.experts,
        "taken": trace.shape.taken,
        "rates": rates,
    });
    let mut text = serde_json::to_string_pretty(&value)
        .map_err(|e| Failure::Error(format!("The result could not be made: {e}.")))?;
    text.push('\n');
    Ok(text)
}

fn table(trace: &Trace, rates: &[Rates]) -> String {
    let shape = trace.shape;
    let all = shape.layers * shape.experts;
    let mut text = format!(
        "{} tokens through {} layers of {} experts, {} taken in each; hits of the second half in %\n\n\
         slots      of all    fixed      LRU      LFU   FaStar   Belady   FaStar of Belady\n",
        trace.tokens(),
        shape.layers,
        shape.experts,
        shape.taken
    );
    for r in rates {
        let [fixed, lru, lfu, ours, belady] =
            [r.fixed, r.lru, r.lfu, r.ours, r.belady].map(|rate| 100.0 * rate);
        let part = 100.0 * r.slots as f64 / all as f64;
        let share = if r.belady > 0.0 {
            format!("{:.3}", r.ours / r.belady)
        } else {
            "-".to_owned()
        };
        text.push_str(&format!(
            "{:<8} {part:>6.1} % {fixed:>8.1} {lru:>8.1} {lfu:>8.1} {ours:>8.1} {belady:>8.1} {share:>18}\n",
            r.slots
        ));
    }
    text.push_str(
        "\nEach column is a way to choose what leaves: fixed keeps what the first half used most; LRU and LFU let go what was used longest ago\n\
         and least often; FaStar is the engine's own; Belady knows the future, and no cache can do better. How high the rates are depends on the model\n\
         and its use: the more often the same experts come again, the higher.\n",
    );
    text
}
