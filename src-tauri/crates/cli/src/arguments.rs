//! The command line. Subcommands are the way; the flat flags of the original FaStar lead to the same commands.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fastar_bench::{Group, Shape};
use fastar_engine::Sampling;
use fastar_fst::EffortTable;

use crate::failure::Failure;

/// Runs DeepSeek V4 on this computer: chat, one answer, web interface, model files.
#[derive(Debug, Parser)]
#[command(
    name = "fastar",
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    after_help = "Without --model, the small demo model that is built in answers.\n\
        The flags of the original FaStar work without a subcommand: --model, --model-dir, --prompt, --tokens, --temp, --top_p, --interactive, --serve, --port."
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    flat: Flat,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Talk with the model in the terminal
    Chat(ChatOptions),
    /// Answer one prompt; only the answer goes to stdout
    Run(RunOptions),
    /// Serve the web interface on this computer (127.0.0.1)
    Serve(ServeOptions),
    /// Fetch a model and make its .fst file meanwhile; DeepSeek V4 Flash, about 156 GB (167 with the drafter), when no repository is given
    Download(DownloadOptions),
    /// List the models on this computer and those that can be fetched
    Models(ModelsOptions),
    /// Say what this computer has, what of it FaStar uses, and which of the settings it cannot meet
    Doctor,
    /// Make a .fst model file from a Hugging Face checkpoint folder
    Convert(ConvertOptions),
    /// Make version 3 with its experts in packets of an older model file, in place when --out is not given
    Upgrade(UpgradeOptions),
    /// Say what is in a .fst model file
    Inspect(InspectOptions),
    /// Check whether a .fst model file is whole
    Verify(VerifyOptions),
    /// Mend damaged parts of a .fst model file from where it was made of
    Repair(RepairOptions),
    /// Measure how fast this computer answers, and how near that is to what it can do
    Bench(BenchOptions),
    /// Compare ways to choose which experts stay in memory, on a routing trace or an invented one
    Simulate(SimulateOptions),
    /// Write the raw logits for given token ids (for checking the engine)
    Logits(LogitsOptions),
}

/// Which model, and how to run it.
#[derive(Args, Clone, Debug, Default)]
pub struct ModelOptions {
    /// Model file (.fst), or the name of one that `fastar models` lists; the built-in demo model when not given
    #[arg(long, value_name = "FILE", conflicts_with = "model_dir")]
    pub model: Option<PathBuf>,
    /// Folder with a single .fst file in it
    #[arg(long, value_name = "FOLDER")]
    pub model_dir: Option<PathBuf>,
    /// Threads to compute on; one for each core when not given
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Most memory for experts: 8G, 500MB, 1.5GiB or bytes; what this process may use when not given
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub cache: Option<u64>,
    /// Record which experts every token goes to, for `fastar simulate`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// How tokens are chosen.
#[derive(Args, Clone, Debug)]
pub struct SamplingOptions {
    /// Most tokens in an answer
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub tokens: Option<usize>,
    /// Temperature, from 0 to 10; 0 always takes the likeliest token
    #[arg(long, value_name = "T", value_parser = temperature, default_value_t = DEFAULT_TEMPERATURE, allow_negative_numbers = true)]
    pub temp: f32,
    /// Keep the likeliest tokens that together have this probability, from 0.001 to 1
    #[arg(long = "top_p", alias = "top-p", value_name = "P", value_parser = top_p, default_value_t = DEFAULT_TOP_P, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Same seed, same answer; random when not given
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
}

/// The same where the settings say what is not given.
#[derive(Args, Clone, Debug)]
pub struct GivenSampling {
    /// Most tokens in an answer; what the settings say when not given
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub tokens: Option<usize>,
    /// Temperature of answers, from 0 to 10; what the settings say when not given
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    pub temp: Option<f32>,
    /// Keep the likeliest tokens that together have this probability, from 0.001 to 1; what the settings say when not given
    #[arg(long = "top_p", alias = "top-p", value_name = "P", value_parser = top_p, allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Same seed, same answer; what the settings say when not given
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
}

#[derive(Args, Debug)]
pub struct ChatOptions {
    #[command(flatten)]
    pub model: ModelOptions,
    #[command(flatten)]
    pub sampling: SamplingOptions,
}

/// Where the prompt comes from.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct PromptOptions {
    /// The prompt; `-` reads it from stdin
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// File with the prompt; `-` reads it from stdin
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct RunOptions {
    #[command(flatten)]
    pub prompt: PromptOptions,
    #[command(flatten)]
    pub model: ModelOptions,
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// Say on stderr in the end what was computed and read
    #[arg(long)]
    pub stats: bool,
}

#[derive(Args, Debug)]
pub struct ServeOptions {
    /// Port on 127.0.0.1; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT, allow_negative_numbers = true)]
    pub port: u16,
    /// Model file (.fst), or the name of one that `fastar models` lists; the one used last, or the built-in demo model, when not given
    #[arg(long, value_name = "FILE", conflicts_with = "model_dir")]
    pub model: Option<PathBuf>,
    /// Folder with a single .fst file in it
    #[arg(long, value_name = "FOLDER")]
    pub model_dir: Option<PathBuf>,
    #[command(flatten)]
    pub sampling: GivenSampling,
    /// Most memory for experts: 8G, 500MB, 1.5GiB or bytes; what the settings say, or what this process may use, when not given
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub cache: Option<u64>,
    /// Ask for no key: every account of this computer can then read and change your chats
    #[arg(long)]
    pub no_key: bool,
}

#[derive(Args, Debug)]
pub struct DownloadOptions {
    /// Repository on Hugging Face, or on the mirror that HF_ENDPOINT names
    #[arg(value_name = "OWNER/NAME")]
    pub repository: Option<String>,
    /// Branch, tag or commit
    #[arg(long, value_name = "REVISION", default_value = "main")]
    pub revision: String,
    /// Folder for the model; that of the app when not given
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<PathBuf>,
    /// Fetch the drafter too, which FaStar does not use yet
    #[arg(long)]
    pub with_drafter: bool,
    /// Most bytes a second: 5M, 800k, 1.5G
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    pub limit: Option<u64>,
    /// Do not ask before a new download begins
    #[arg(long)]
    pub yes: bool,
    /// Progress as JSON, one object a line on stdout
    #[arg(long, value_name = "FORMAT")]
    pub progress: Option<ProgressFormat>,
}

/// How a program reads progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressFormat {
    Json,
}

#[derive(Args, Debug)]
pub struct ModelsOptions {
    /// Folder with models; that of the app when not given
    #[arg(long, value_name = "FOLDER")]
    pub model_dir: Option<PathBuf>,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Delete this model of the list with everything that belongs to it
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub delete: Option<String>,
    /// Do not ask before it is deleted
    #[arg(long, requires = "delete")]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub struct ConvertOptions {
    /// Folder with config.json, the safetensors files and tokenizer.json
    pub checkpoint_dir: PathBuf,
    /// Model file to make
    pub out: PathBuf,
    /// Effort texts the model was trained with: preview (April 2026, DSpark, Pro) or 0731 (and Vision-Exp). Known from the folder's
    /// name where it is DeepSeek's
    #[arg(long, value_name = "TABLE", value_parser = effort)]
    pub effort: Option<EffortTable>,
    /// Leave the drafter (mtp.*) out; its shards need not be there
    #[arg(long)]
    pub without_drafter: bool,
    /// Begin anew instead of going on with an unfinished conversion
    #[arg(long)]
    pub restart: bool,
}

#[derive(Args, Debug)]
pub struct UpgradeOptions {
    /// Model file (.fst), or the name of one that `fastar models` lists; of the original FaStar with its .hc, .norm and .tid2eid beside it
    pub file: PathBuf,
    /// New model file to make; the old files stay. Of a file that needs no upgrade none is made, which is an error
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct InspectOptions {
    /// Model file (.fst), or the name of one that `fastar models` lists
    pub file: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct VerifyOptions {
    /// Model file (.fst), or the name of one that `fastar models` lists
    pub file: PathBuf,
    /// Read every byte, not only what tells whether the structure is right
    #[arg(long)]
    pub full: bool,
    /// The result as JSON, for programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct RepairOptions {
    /// Model file (.fst), or the name of one that `fastar models` lists
    pub file: PathBuf,
    /// Folder with the checkpoint the file was made from; fetched from the repository it names when not given
    #[arg(long, value_name = "CHECKPOINT_DIR")]
    pub from: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct SimulateOptions {
    /// Trace that `fastar run --trace` recorded; an invented one like DeepSeek V4 Flash when not given
    pub trace: Option<PathBuf>,
    /// Experts that fit, as a number or a part of all (10%); several may be given
    #[arg(long, value_name = "N|P%", value_parser = slots, allow_negative_numbers = true, num_args = 1.., value_delimiter = ',')]
    pub slots: Vec<Slots>,
    /// How the invented trace is: default, or skewed (fewer experts do more)
    #[arg(long, value_name = "KIND", conflicts_with = "trace")]
    pub synthetic: Option<Kind>,
    /// Tokens of the invented trace
    #[arg(long, value_name = "N", value_parser = traced, conflicts_with = "trace", allow_negative_numbers = true)]
    pub tokens: Option<usize>,
    /// Keep the trace in this file
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub save: Option<PathBuf>,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Kinds of invented traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Default,
    Skewed,
}

/// A size of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slots {
    /// So many experts.
    Count(usize),
    /// So many percent of all.
    Part(f64),
}

impl Slots {
    /// As a number of experts.
    pub fn of(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Part(percent) => (percent / 100.0 * all as f64) as usize,
        }
    }
}

#[derive(Args, Debug)]
pub struct LogitsOptions {
    #[command(flatten)]
    pub model: ModelOptions,
    /// File with the token ids, a JSON list of numbers
    #[arg(long, value_name = "IDS.json")]
    pub tokens: PathBuf,
    /// File to write: `logits`, and with --decode `greedy` and `decode_logits`
    #[arg(long, value_name = "OUT.safetensors")]
    pub out: PathBuf,
    /// Continue greedily for so many tokens
    #[arg(long, value_name = "N", value_parser = decoded, allow_negative_numbers = true)]
    pub decode: Option<usize>,
    /// Feed the ids in pieces of this size
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub chunk: Option<usize>,
    /// Round as the hosted model does
    #[arg(long)]
    pub reference: bool,
}

#[derive(Args, Debug)]
pub struct BenchOptions {
    /// Model file (.fst) to measure; one of random weights is made for it when not given
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shape", "dense", "folder", "keep"])]
    pub model: Option<PathBuf>,
    /// Shape of the model to make: flash6L32E (5 GB; per token what an eighth of DeepSeek V4 Flash reads), flash3L256E (12 GB; layers with all
    /// experts) or tiny
    #[arg(long, value_name = "NAME", value_parser = Shape::NAMES, default_value = Shape::NAMES[0])]
    pub shape: String,
    /// Its weights outside the experts
    #[arg(long, value_name = "FORMAT", default_value = "fp8")]
    pub dense: DenseFormat,
    /// Folder to make it in; a temporary one on the disk when not given
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Keep the model that is made
    #[arg(long)]
    pub keep: bool,
    /// Threads to compute on; all cores when not given
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Best instruction set to use: baseline, avx2 or avx512
    #[arg(long, value_name = "LEVEL")]
    pub level: Option<InstructionSet>,
    /// Only this: machine, kernels, disk, model, peer or pager; may be given several times
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub only: Vec<Group>,
    /// Rounds of each measurement; the median is told
    #[arg(long, value_name = "N", value_parser = times, default_value = "5", allow_negative_numbers = true)]
    pub rounds: usize,
    /// Benchmark command of another engine to compare with, by turns: one that prints what llama-bench prints, such as
    /// "llama-bench -m FILE -p 256 -n 24 -r 1 -o json". One that takes longer than 30 minutes is ended
    #[arg(long, value_name = "COMMAND", value_parser = peer)]
    pub peer: Option<String>,
    /// How many turns
    #[arg(long, value_name = "N", value_parser = times, default_value = "5", requires = "peer", allow_negative_numbers = true)]
    pub pairs: usize,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Say which bars of the project are reached
    #[arg(long, hide = true)]
    pub bars: bool,
}

/// How the weights outside the experts are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DenseFormat {
    /// As DeepSeek stores them
    Fp8,
    /// As llama.cpp usually has them
    #[value(name = "q8_0")]
    Q8,
}

/// Instruction sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InstructionSet {
    Baseline,
    Avx2,
    Avx512,
}

fn group(text: &str) -> Result<Group, String> {
    Group::ALL
        .into_iter()
        .find(|(_, name)| *name == text)
        .map(|(group, _)| group)
        .ok_or_else(|| {
            let names = Group::ALL.map(|(_, name)| name);
            format!("it must be one of {}", names.join(", "))
        })
}

/// The flags of the original FaStar.
#[derive(Args, Debug)]
struct Flat {
    #[arg(long, hide = true, conflicts_with = "model_dir")]
    model: Option<PathBuf>,
    #[arg(long, hide = true)]
    model_dir: Option<PathBuf>,
    #[arg(long, hide = true, value_parser = threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    #[arg(long, hide = true, value_parser = size, allow_hyphen_values = true)]
    cache: Option<u64>,
    #[arg(long, hide = true, allow_hyphen_values = true, conflicts_with_all = ["prompt_file", "interactive", "serve"])]
    prompt: Option<String>,
    #[arg(long, hide = true, conflicts_with_all = ["interactive", "serve"])]
    prompt_file: Option<PathBuf>,
    #[arg(long, hide = true, value_parser = tokens, allow_negative_numbers = true)]
    tokens: Option<usize>,
    #[arg(long, hide = true, value_parser = temperature, allow_negative_numbers = true)]
    temp: Option<f32>,
    #[arg(long = "top_p", alias = "top-p", hide = true, value_parser = top_p, allow_negative_numbers = true)]
    top_p: Option<f32>,
    #[arg(long, hide = true, value_parser = seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    #[arg(long, hide = true, conflicts_with = "serve")]
    interactive: bool,
    #[arg(long, hide = true, conflicts_with = "threads")]
    serve: bool,
    #[arg(long, hide = true, requires = "serve", allow_negative_numbers = true)]
    port: Option<u16>,
}

/// The app's as well.
const DEFAULT_TEMPERATURE: f32 = Sampling::TEMPERATURE as f32;
const DEFAULT_TOP_P: f32 = Sampling::TOP_P as f32;
const DEFAULT_PORT: u16 = 8642;

impl Arguments {
    /// The command that was asked for in either way.
    pub fn command(self) -> Result<Command, Failure> {
        if let Some(command) = self.command {
            return Ok(command);
        }
        let flat = self.flat;
        if flat.serve {
            return Ok(Command::Serve(ServeOptions {
                port: flat.port.unwrap_or(DEFAULT_PORT),
                model: flat.model,
                model_dir: flat.model_dir,
                sampling: GivenSampling {
                    tokens: flat.tokens,
                    temp: flat.temp,
                    top_p: flat.top_p,
                    seed: flat.seed,
                },
                cache: flat.cache,
                no_key: false,
            }));
        }
        let model = ModelOptions {
            model: flat.model,
            model_dir: flat.model_dir,
            threads: flat.threads,
            cache: flat.cache,
            trace: None,
        };
        let sampling = SamplingOptions {
            tokens: flat.tokens,
            temp: flat.temp.unwrap_or(DEFAULT_TEMPERATURE),
            top_p: flat.top_p.unwrap_or(DEFAULT_TOP_P),
            seed: flat.seed,
        };
        let prompt = PromptOptions {
            prompt: flat.prompt,
            prompt_file: flat.prompt_file,
        };
        if prompt.prompt.is_some() || prompt.prompt_file.is_some() {
            return Ok(Command::Run(RunOptions {
                prompt,
                model,
                sampling,
                stats: false,
            }));
        }
        if flat.interactive || model.model.is_some() || model.model_dir.is_some() {
            return Ok(Command::Chat(ChatOptions { model, sampling }));
        }
        Err(Failure::Usage(
            "What should be done? Give --prompt TEXT, --interactive or --serve; `fastar --help` shows everything.".into(),
        ))
    }
}

fn temperature(text: &str) -> Result<f32, String> {
    decimal(text, 0.0..=Sampling::MOST_TEMPERATURE)
}

fn top_p(text: &str) -> Result<f32, String> {
    decimal(text, Sampling::LEAST_TOP_P..=1.0)
}

fn decimal(text: &str, range: RangeInclusive<f64>) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|number| range.contains(number))
        .map(|number| number as f32)
        .ok_or_else(|| {
            format!(
                "it must be a number from {} to {}",
                range.start(),
                range.end()
            )
        })
}

/// No model has a longer context.
const MOST_TOKENS: usize = 16_777_216;
/// An invented trace is held in memory and replayed for every size: minutes of work.
const MOST_TRACED: usize = 100_000;
/// The logits of every token are held in memory: 5 GB of DeepSeek V4 Flash.
const MOST_DECODED: usize = 10_000;
/// As often as nobody will wait for.
const MOST_TIMES: usize = 1_000_000;
/// Far more experts than a model has.
const MOST_SLOTS: usize = 1_000_000;

fn whole(text: &str, most: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| (1..=most).contains(n))
        .ok_or_else(|| format!("it must be a whole number from 1 to {most}"))
}

fn threads(text: &str) -> Result<usize, String> {
    whole(text, fastar_engine::MOST_THREADS)
}

fn tokens(text: &str) -> Result<usize, String> {
    whole(text, MOST_TOKENS)
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

fn peer(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("it must be a command, such as \"llama-bench -m FILE -o json\"".into()),
        false => Ok(text.to_owned()),
    }
}

fn traced(text: &str) -> Result<usize, String> {
    whole(text, MOST_TRACED)
}

fn decoded(text: &str) -> Result<usize, String> {
    whole(text, MOST_DECODED)
}

fn times(text: &str) -> Result<usize, String> {
    whole(text, MOST_TIMES)
}

/// Bytes, as [`bytes`] reads them.
fn size(text: &str) -> Result<u64, String> {
    match bytes(text) {
        Some(bytes) if bytes <= 1e15 => Ok(bytes as u64),
        Some(_) => Err("it is more than any computer has; 1000T is the most".into()),
        None => Err("it must be a number of bytes, for example 8G, 500MB or 1.5GiB".into()),
    }
}

fn slots(text: &str) -> Result<Slots, String> {
    let slots = match text.strip_suffix('%') {
        Some(part) => part
            .trim_end()
            .parse()
            .ok()
            .filter(|p: &f64| *p > 0.0 && *p <= 100.0)
            .map(Slots::Part),
        None => whole(text, MOST_SLOTS).ok().map(Slots::Count),
    };
    slots.ok_or_else(|| {
        format!("it must be a whole number from 1 to {MOST_SLOTS}, or a part such as 10%")
    })
}

/// A number of bytes as people write it: alone or with k, M, G or T for powers of 1000, in either case, which a B may follow; KiB, MiB, GiB and TiB are
/// powers of 1024.
fn bytes(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = match unit.trim_start() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        "tib" => 1_099_511_627_776.0,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * unit)
}

/// Bytes a second, as [`bytes`] reads them.
fn rate(text: &str) -> Result<u64, String> {
    bytes(text)
        .filter(|bytes| (1000.0..1e12).contains(bytes))
        .map(|bytes| bytes as u64)
        .ok_or_else(|| {
            "it must be a number of bytes a second from 1000 to 1T, for example 5M".into()
        })
}

fn effort(text: &str) -> Result<EffortTable, String> {
    match text {
        "preview" => Ok(EffortTable::Preview),
        "0731" => Ok(EffortTable::V0731),
        _ => Err("it must be preview or 0731".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn parsed(line: &str) -> Result<Command, Failure> {
        let words = std::iter::once("fastar").chain(line.split_whitespace());
        Arguments::try_parse_from(words)
            .map_err(|e| Failure::Usage(e.to_string()))
            .and_then(Arguments::command)
    }

    #[test]
    fn the_command_line_is_consistent() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_peer_that_is_no_command_is_refused() {
        for nothing in ["", " ", "\t\n"] {
            let refused = Arguments::try_parse_from(["fastar", "bench", "--peer", nothing]);
            let told = refused.unwrap_err().to_string();
            assert!(told.contains("it must be a command"), "{told}");
        }
    }

    #[test]
    fn the_flags_of_the_original_lead_to_the_same_commands() {
        match parsed("--model x.fst --prompt hi --tokens 20 --temp 0 --top_p 0.9").unwrap() {
            Command::Run(run) => {
                assert_eq!(run.prompt.prompt.as_deref(), Some("hi"));
                assert_eq!(run.model.model, Some("x.fst".into()));
                assert_eq!(run.sampling.tokens, Some(20));
                assert_eq!((run.sampling.temp, run.sampling.top_p), (0.0, 0.9));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            parsed("--serve --port 8080 --top_p 0.9 --tokens 5 --seed 1").unwrap(),
            Command::Serve(ServeOptions { port: 8080, .. })
        ));
        assert!(matches!(
            parsed("--serve").unwrap(),
            Command::Serve(ServeOptions {
                port: DEFAULT_PORT,
                ..
            })
        ));
        assert!(matches!(parsed("--interactive").unwrap(), Command::Chat(_)));
        assert!(matches!(parsed("--model-dir d").unwrap(), Command::Chat(_)));
    }

    #[test]
    fn the_defaults_are_the_same_in_both_ways() {
        let (Command::Run(new), Command::Run(old)) = (
            parsed("run --prompt hi").unwrap(),
            parsed("--prompt hi").unwrap(),
        ) else {
            panic!("not run");
        };
        assert_eq!(new.sampling.temp, old.sampling.temp);
        assert_eq!(new.sampling.top_p, old.sampling.top_p);
        assert_eq!(new.sampling.tokens, old.sampling.tokens);
        // Those of the window, which the settings of the app have.
        assert_eq!((new.sampling.temp, new.sampling.top_p), (0.6, 0.95));
    }

    #[test]
    fn a_rate_has_a_unit() {
        assert_eq!(
            ["5M", "800k", "1.5G", "2000"].map(rate),
            [Ok(5_000_000), Ok(800_000), Ok(1_500_000_000), Ok(2000)]
        );
        for wrong in [
            "", "M", "fast", "-5M", "0", "999", "NaN", "infG", "1e300", "5é",
        ] {
            assert!(rate(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!(
            [
                "8G", "500M", "1.5T", "0", "20k", "7", "8g", "10GB", "1.5 GiB", "2kib", " 3 MB ",
                "9b",
            ]
            .map(size),
            [
                8_000_000_000,
                500_000_000,
                1_500_000_000_000,
                0,
                20_000,
                7,
                8_000_000_000,
                10_000_000_000,
                1_610_612_736,
                2048,
                3_000_000,
                9,
            ]
            .map(Ok)
        );
        for wrong in [
            "", "G", "big", "-1", "NaN", "infG", "1e300", "8GBB", "8i", "5é", "2000T",
        ] {
            assert!(size(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "run",
            "run --prompt a --prompt-file b",
            "run --prompt a --temp -1",
            "run --prompt a --temp NaN",
            "run --prompt a --temp inf",
            "run --prompt a --top_p 0",
            "run --prompt a --top_p 1.1",
            "run --prompt a --top_p nan",
            "run --prompt a --tokens 0",
            "run --prompt a --threads 0",
            "run --prompt a --threads -1",
            "run --prompt a --threads abc",
            "run --prompt a --model m --model-dir d",
            "serve --port 65536",
            "serve --port -1",
            "--serve --prompt a",
            "--serve --threads 2",
            "--port 80",
            "--temp 0",
            "--prompt a --temp -0.5",
            "fly",
            "download a b",
            "download --limit 0",
            "download --progress xml",
            "convert only-one",
            "chat --prompt a",
        ] {
            assert!(parsed(line).is_err(), "{line:?} was accepted");
        }
    }

    #[test]
    fn every_number_has_a_range_and_what_is_outside_it_is_refused_in_one_sentence() {
        // Command (none for the flags of the original), flag, what begins a line with it, the ends of its range, what lies outside it, and the sentence.
        type Row = (
            &'static str,
            &'static str,
            &'static str,
            [&'static str; 2],
            [&'static str; 2],
            &'static str,
        );
        const THREADS: &str = "from 1 to 512";
        const SIZE: &str = "1000T is the most";
        const TOKENS: &str = "from 1 to 16777216";
        const TEMPERATURE: &str = "from 0 to 10";
        const SEED: &str = "18446744073709551615";
        let mut rows: Vec<Row> = Vec::new();
        for (command, begin) in [
            ("chat", "chat"),
            ("run", "run --prompt a"),
            ("logits", "logits --tokens a --out b"),
            ("", "--interactive"),
        ] {
            rows.push((
                command,
                "threads",
                begin,
                ["1", "512"],
                ["0", "513"],
                THREADS,
            ));
            rows.push((
                command,
                "cache",
                begin,
                ["0", "1000T"],
                ["1001T", "99999999999999999999"],
                SIZE,
            ));
            if command != "logits" {
                rows.push((
                    command,
                    "tokens",
                    begin,
                    ["1", "16777216"],
                    ["16777217", "99999999999"],
                    TOKENS,
                ));
                rows.push((
                    command,
                    "temp",
                    begin,
                    ["0", "10"],
                    ["10.1", "1e39"],
                    TEMPERATURE,
                ));
                rows.push((
                    command,
                    "top_p",
                    begin,
                    ["0.001", "1"],
                    ["0", "1.1"],
                    "from 0.001 to 1",
                ));
                rows.push((
                    command,
                    "seed",
                    begin,
                    ["0", SEED],
                    ["-1", "18446744073709551616"],
                    "from 0 to 18446744073709551615",
                ));
            }
        }
        rows.extend([
            ("", "port", "--serve", ["0", "65535"], ["-1", "65536"], ""),
            (
                "serve",
                "port",
                "serve",
                ["0", "65535"],
                ["-1", "65536"],
                "65535",
            ),
            (
                "serve",
                "temp",
                "serve",
                ["0", "10"],
                ["-0.1", "11"],
                TEMPERATURE,
            ),
            (
                "serve",
                "top_p",
                "serve",
                ["0.001", "1"],
                ["0", "1.1"],
                "from 0.001 to 1",
            ),
            (
                "serve",
                "tokens",
                "serve",
                ["1", "16777216"],
                ["0", "16777217"],
                TOKENS,
            ),
            (
                "serve",
                "seed",
                "serve",
                ["0", SEED],
                ["-1", "18446744073709551616"],
                SEED,
            ),
            (
                "serve",
                "cache",
                "serve",
                ["0", "1000T"],
                ["1e30", "1001T"],
                "",
            ),
            (
                "download",
                "limit",
                "download",
                ["1k", "999G"],
                ["999", "2T"],
                "from 1000 to 1T",
            ),
            (
                "simulate",
                "slots",
                "simulate",
                ["1", "100%"],
                ["1000001", "101%"],
                "from 1 to 1000000",
            ),
            (
                "simulate",
                "tokens",
                "simulate",
                ["1", "100000"],
                ["100001", "99999999999"],
                "from 1 to 100000",
            ),
            (
                "logits",
                "decode",
                "logits --tokens a --out b",
                ["1", "10000"],
                ["0", "10001"],
                "from 1 to 10000",
            ),
            (
                "logits",
                "chunk",
                "logits --tokens a --out b",
                ["1", "16777216"],
                ["0", "16777217"],
                TOKENS,
            ),
            (
                "bench",
                "threads",
                "bench",
                ["1", "512"],
                ["0", "513"],
                THREADS,
            ),
            (
                "bench",
                "rounds",
                "bench",
                ["1", "1000000"],
                ["0", "1000001"],
                "from 1 to 1000000",
            ),
            (
                "bench",
                "pairs",
                "bench --peer p",
                ["1", "1000000"],
                ["0", "1000001"],
                "from 1 to 1000000",
            ),
        ]);
        for (_, flag, begin, inside, outside, sentence) in &rows {
            for value in inside {
                let line = format!("{begin} --{flag} {value}");
                assert!(parsed(&line).is_ok(), "{line}");
            }
            for value in outside {
                let line = format!("{begin} --{flag}={value}");
                let refused = parsed(&line).unwrap_err().to_string();
                let first = refused.lines().next().unwrap_or_default();
                assert!(
                    first.contains(value) && first.contains(sentence),
                    "{line}: {refused}"
                );
            }
        }
        // What is below every range is told of the range, too, however it is written.
        for (_, flag, begin, _, _, _) in &rows {
            let range = |value: &str| {
                let refused = parsed(&format!("{begin} --{flag}{value}")).unwrap_err();
                refused
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            };
            let told = range("=-1");
            assert!(told.contains("-1"), "{told}");
            assert_eq!(range(" -1"), told, "{begin} --{flag}");
        }
        for (flag, begin) in [
            ("cache", "run --prompt a"),
            ("cache", "serve"),
            ("limit", "download"),
        ] {
            let told = parsed(&format!("{begin} --{flag} -5G"))
                .unwrap_err()
                .to_string();
            assert!(told.contains("it must be a number of bytes"), "{told}");
        }
        // Whatever takes a number is in the list.
        let whole = <Arguments as clap::CommandFactory>::command();
        let takes_number = |argument: &clap::Arg| {
            let kind = argument.get_value_parser().type_id();
            [
                std::any::TypeId::of::<usize>(),
                std::any::TypeId::of::<u64>(),
                std::any::TypeId::of::<u16>(),
                std::any::TypeId::of::<f32>(),
                std::any::TypeId::of::<Slots>(),
            ]
            .iter()
            .any(|number| kind == *number)
        };
        let commands = whole.get_subcommands().map(|c| (c.get_name(), c));
        let mut there: Vec<(&str, &str)> = commands
            .chain([("", &whole)])
            .flat_map(|(name, c)| c.get_arguments().map(move |argument| (name, argument)))
            .filter(|(_, argument)| takes_number(argument))
            .filter_map(|(name, argument)| Some((name, argument.get_long()?)))
            .collect();
        let mut listed: Vec<(&str, &str)> = rows.iter().map(|row| (row.0, row.1)).collect();
        there.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, there);
    }
}
