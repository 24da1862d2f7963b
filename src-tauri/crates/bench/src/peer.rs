//! Another engine's benchmark command: running it, and reading what it says. Understood is llama.cpp's `llama-bench`, whose forks print the
//! same: JSON (`-o json`), and the table it prints when not asked for anything else.
//!
//! It runs in a process group of its own, which is ended whole when it takes too long, says too much or is no longer wanted, and also when
//! this program is killed: a part of the group waits for that. What it starts in other groups (`setsid`) carries a mark in its environment, by
//! which it is found and ended as well (on Linux, and not when this program is killed).

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastar_kernels::threads;
use serde::Deserialize;

use crate::{Error, Result};

/// A run that takes longer is ended; the help of `fastar bench` says so.
const MOST_MINUTES: u64 = 30;
/// A benchmark prints some lines; whatever prints more than this is none.
const MOST_BYTES: u64 = 4 << 20;
/// Faster than any computer, and slower than anyone waits: who prints more or less has not measured.
const MOST_RATE: f64 = 1e7;
const LEAST_RATE: f64 = 1e-6;

/// Runs `$1` with nothing to read. Its standard input is open as long as this program wants the peer: whoever reads its end, ends the group.
/// The one who waits for it holds nothing else open.
#[cfg(unix)]
const GUARDED: &str = "exec 3<&0 </dev/null; { read -r end <&3; kill -KILL 0; } >/dev/null 2>&1 & exec 3<&-; eval \"$1\"";
/// What the command and all it starts have in their environment.
const MARK: &str = "FASTAR_BENCH_PEER";
/// Who holds the output open when the command itself has ended is waited for so long.
const LINGER: Duration = Duration::from_secs(3);
/// So often it is seen whether a run is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The peer that runs now.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    /// Number of its process group; none once it has been waited for: the number may then be another's.
    group: Option<u32>,
    /// What follows [`MARK`].
    mark: String,
}

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the peer that runs now, if one does, with everything it has started. For a program that is about to end.
pub fn end_peer() {
    // Held, so that the number stays that of the peer.
    if let Some(running) = &*running() {
        running.group.into_iter().for_each(kill);
        kill_marked(&running.mark);
    }
}

/// Ends every process that carries this mark, until none is left: one may have started another meanwhile.
#[cfg(target_os = "linux")]
fn kill_marked(mark: &str) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    /// A peer that starts processes faster than they are found is left to itself.
    const MOST_LOOKS: usize = 50;
    let carried = format!("{MARK}={mark}");
    let is_marked = |number: i32| {
        // Of somebody else, or of one that has ended, nothing can be read.
        std::fs::read(format!("/proc/{number}/environ")).is_ok_and(|environment| {
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == carried.as_bytes())
        })
    };
    for _ in 0..MOST_LOOKS {
        let mut found = false;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some(number) = number.filter(|number| is_marked(*number)) else {
                continue;
            };
            // Once it is held its number cannot become another's; what has the number now is looked at again.
            let held =
                Pid::from_raw(number).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            if let Some(held) = held.filter(|_| is_marked(number)) {
                found |= pidfd_send_signal(held, Signal::KILL).is_ok();
            }
        }
        if !found {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(not(target_os = "linux"))]
fn kill_marked(_mark: &str) {}

#[cfg(unix)]
fn kill(group: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};
    let group = i32::try_from(group).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // That all of it has ended already is as well.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(not(unix))]
fn kill(_group: u32) {}

/// What was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Reading a prompt of so many tokens.
    Prompt(usize),
    /// Writing so many tokens, from an empty context.
    Answer(usize),
}

/// One speed a peer reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Of what.
    pub test: Test,
    /// Tokens a second.
    pub rate: f64,
}

/// Runs the command in a shell and returns the speeds it reports. What it says besides goes where ours goes.
///
/// # Errors
/// When it cannot be run, fails, takes or prints too much, or says nothing that is understood; when `stop` is set.
pub fn run(command: &str, stop: &AtomicBool) -> Result<Vec<Speed>> {
    let text = printed(command, stop, Duration::from_secs(60 * MOST_MINUTES))?;
    let speeds = speeds(&text).map_err(|what| problem(command, what))?;
    if speeds.is_empty() {
        return Err(problem(
            command,
            "printed no speed that is understood, as `llama-bench -p 0 -n 24 -o json` does".into(),
        ));
    }
    Ok(speeds)
}

fn problem(command: &str, problem: String) -> Error {
    Error::Peer {
        command: command.to_owned(),
        problem,
    }
}

/// What the command prints. Whether it ended well, badly or not at all: nothing of it runs any more that is still in its process group.
fn printed(command: &str, stop: &AtomicBool, most: Duration) -> Result<String> {
    let mark = mark();
    let mut shell = shell(command);
    shell.env(MARK, &mark);
    shell.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = {
        let mut running = running();
        let child = shell
            .spawn()
            .map_err(|e| problem(command, format!("could not be started: {e}")))?;
        *running = Some(Running {
            group: Some(child.id()),
            mark: mark.clone(),
        });
        child
    };
    let wanted = child.stdin.take();
    let printed = output(&mut child, command, &mark, stop, most);
    let is_this = |running: &mut Running| running.mark == mark;
    if let Some(this) = running().take_if(is_this) {
        this.group.into_iter().for_each(kill);
    }
    kill_marked(&mark);
    // Where there are no groups, the shell at least ends.
    let _ = child.kill();
    let _ = child.wait();
    // Only now: what is left of the group ends with it.
    drop(wanted);
    match printed {
        // However it ended then, it was ended: who stopped this may have ended it before that was seen here.
        Err(_) if stop.load(Ordering::Relaxed) => Err(Error::Stopped),
        printed => printed,
    }
}

#[cfg(unix)]
fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", GUARDED, "sh", command]);
    shell.stdin(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    shell
}

#[cfg(not(unix))]
fn shell(command: &str) -> Command {
    let mut shell = Command::new("cmd");
    shell.args(["/C", command]).stdin(Stdio::null());
    shell
}

/// A text that no other run has.
fn mark() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    format!(
        "{}-{}-{}",
        std::process::id(),
        since.map_or(0, |since| since.as_nanos()),
        RUNS.fetch_add(1, Ordering::Relaxed)
    )
}

/// Reads until the command ends and says whether it ended well. It is not waited for here where it does not.
fn output(
    child: &mut Child,
    command: &str,
    mark: &str,
    stop: &AtomicBool,
    most: Duration,
) -> Result<String> {
    let end = Instant::now() + most;
    let go_on = || {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        if Instant::now() >= end {
            let minutes = most.as_secs() / 60;
            return Err(problem(
                command,
                format!("had not ended after {minutes} minutes and was stopped"),
            ));
        }
        Ok(())
    };
    let (sender, receiver) = mpsc::channel();
    let out = child.stdout.take();
    // It ends with the command: then there is nobody left who could write.
    threads::start("fastar-peer", move || {
        let mut bytes = Vec::new();
        let read = out.map_or(Ok(0), |out| {
            out.take(MOST_BYTES + 1).read_to_end(&mut bytes)
        });
        // Nobody may wait any more.
        let _ = sender.send(read.map(|_| bytes));
    })?;
    let mut ended = None;
    let bytes = loop {
        match receiver.recv_timeout(LOOK_EVERY) {
            Ok(read) => {
                break read.map_err(|e| problem(command, format!("could not be read: {e}")))?;
            }
            Err(RecvTimeoutError::Timeout) => {
                go_on()?;
                if ended.is_none() && has_ended(child).unwrap_or(false) {
                    ended = Some(Instant::now());
                }
                let lingers = ended.map_or(Duration::ZERO, |since| since.elapsed());
                if lingers > 2 * LINGER {
                    let what = "left something running that holds its output open";
                    return Err(problem(command, what.into()));
                }
                if lingers > LINGER {
                    // What was said so far is then all there is. The command was not waited for: the number is still that of its group.
                    kill(child.id());
                    kill_marked(mark);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(problem(command, "could not be read".into()));
            }
        }
    };
    if bytes.len() as u64 > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(problem(
            command,
            format!("printed more than {most} MiB and was stopped; a benchmark prints some lines"),
        ));
    }
    let status = loop {
        let mut running = running();
        let failed = |e: std::io::Error| problem(command, format!("could not be waited for: {e}"));
        if has_ended(child).map_err(failed)? {
            // Before it is waited for: until then the group's number is its own. What it has left would run beside whatever comes next.
            kill(child.id());
            if let Some(this) = running.as_mut().filter(|this| this.mark == mark) {
                this.group = None;
            }
            break child.wait().map_err(failed)?;
        }
        drop(running);
        go_on()?;
        std::thread::sleep(LOOK_EVERY);
    };
    if !status.success() {
        return Err(problem(command, format!("failed ({status})")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the command has ended. It is not waited for.
#[cfg(unix)]
fn has_ended(child: &mut Child) -> std::io::Result<bool> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let Some(id) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    Ok(waitid(WaitId::Pid(id), options)?.is_some())
}

#[cfg(not(unix))]
fn has_ended(child: &mut Child) -> std::io::Result<bool> {
    Ok(child.try_wait()?.is_some())
}

/// The speeds in what a peer prints: those of prompts and answers from an empty context.
///
/// # Errors
/// What the command did, after its name, where it prints a speed that cannot be.
pub fn speeds(text: &str) -> std::result::Result<Vec<Speed>, String> {
    let from = text.find('[').and_then(|start| {
        let end = text.rfind(']')?;
        let json = text.get(start..=end)?;
        // As C writes what is no number, which no JSON has.
        let json = json
            .replace(": nan", ": null")
            .replace(": -nan", ": null")
            .replace(": inf", ": null")
            .replace(": -inf", ": null");
        serde_json::from_str::<Vec<Entry>>(&json).ok()
    });
    let found: Vec<Speed> = match from {
        Some(entries) => entries.iter().filter_map(Entry::speed).collect(),
        None => table(text),
    };
    let impossible = |speed: &&Speed| !(LEAST_RATE..=MOST_RATE).contains(&speed.rate);
    match found.iter().find(impossible) {
        Some(Speed { rate, .. }) if rate.is_nan() => {
            Err("printed a speed that is no number".into())
        }
        Some(Speed { rate, .. }) => Err(format!(
            "printed a speed of {rate:?} tokens a second, which cannot be"
        )),
        None => Ok(found),
    }
}

/// What is used of an entry of llama-bench's JSON.
#[derive(Deserialize)]
struct Entry {
    n_prompt: usize,
    n_gen: usize,
    #[serde(default)]
    n_depth: usize,
    avg_ts: Option<f64>,
}

impl Entry {
    fn speed(&self) -> Option<Speed> {
        let test = match (self.n_prompt, self.n_gen, self.n_depth) {
            (n, 0, 0) if n > 0 => Test::Prompt(n),
            (0, n, 0) if n > 0 => Test::Answer(n),
            _ => return None,
        };
        Some(Speed {
            test,
            rate: self.avg_ts.unwrap_or(f64::NAN),
        })
    }
}

/// Speeds in a Markdown table with the columns `test` and `t/s`.
fn table(text: &str) -> Vec<Speed> {
    let mut columns = None;
    let mut speeds = Vec::new();
    for line in text
        .lines()
        .filter(|line| line.trim_start().starts_with('|'))
    {
        let cells: Vec<&str> = line
            .trim()
            .trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        let named = |name: &str| cells.iter().position(|cell| *cell == name);
        if let (Some(test), Some(rate)) = (named("test"), named("t/s")) {
            columns = Some((test, rate));
        } else if let Some((test, rate)) = columns {
            let test = cells.get(test).and_then(|cell| test_named(cell));
            // `9.29 ± 0.19`
            let rate = cells
                .get(rate)
                .and_then(|cell| cell.split_whitespace().next()?.parse().ok());
            if let (Some(test), Some(rate)) = (test, rate) {
                speeds.push(Speed { test, rate });
            }
        }
    }
    speeds
}

/// `pp256` or `tg24`; none for what is measured otherwise (`tg24 @ d512`, `pp512+tg128`).
fn test_named(name: &str) -> Option<Test> {
    let count = |prefix: &str| name.strip_prefix(prefix)?.parse().ok().filter(|n| *n > 0);
    count("pp")
        .map(Test::Prompt)
        .or_else(|| count("tg").map(Test::Answer))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What llama-bench printed of a small model, with `-o json` and without.
    const JSON: &str = include_str!("../tests/fixtures/llama-bench.json");
    const TABLE: &str = include_str!("../tests/fixtures/llama-bench.md");

    fn speed(test: Test, rate: f64) -> Speed {
        Speed { test, rate }
    }

    #[test]
    fn llama_bench_is_understood_in_both_of_its_ways() {
        let expected = [
            speed(Test::Prompt(16), 32.297056),
            speed(Test::Answer(8), 6.98591),
        ];
        assert_eq!(speeds(JSON).unwrap(), expected);
        // Of the table only what starts from an empty context and is one thing.
        let expected = [speed(Test::Prompt(16), 50.01), speed(Test::Answer(8), 1.17)];
        assert_eq!(speeds(TABLE).unwrap(), expected);
    }

    #[test]
    fn what_a_program_says_before_its_json_does_not_matter() {
        let text = format!("warming up\n{JSON}\ndone\n");
        assert_eq!(speeds(&text).unwrap().len(), 2);
    }

    #[test]
    fn nothing_is_made_of_other_words() {
        for text in [
            "",
            "[",
            "][",
            "[]",
            "[1, 2]",
            "no table",
            "| test | t/s |",
            "| test | t/s |\n| tg24 |",
            "| test | t/s |\n| tg24 | fast |",
            "| test | t/s |\n| tg0 | 1.0 |",
            r#"[{"n_prompt": 0, "n_gen": 24, "n_depth": 512, "avg_ts": 1.0}]"#,
            r#"[{"n_prompt": 8, "n_gen": 24, "avg_ts": 1.0}]"#,
        ] {
            assert_eq!(speeds(text), Ok(vec![]), "{text:?}");
        }
    }

    #[test]
    fn a_speed_that_cannot_be_is_told() {
        for (rate, told) in [
            ("-1.0", "a speed of -1.0 tokens a second"),
            ("0.0", "a speed of 0.0 tokens a second"),
            ("1e300", "a speed of 1e300 tokens a second"),
            ("1e-320", "a speed of 1e-320 tokens a second"),
            ("nan", "a speed that is no number"),
        ] {
            let json = format!(r#"[{{"n_prompt": 0, "n_gen": 24, "avg_ts": {rate}}}]"#);
            let table = format!("| test | t/s |\n| tg8 | 2.5 |\n| tg24 | {rate} |");
            for text in [json, table] {
                let problem = speeds(&text).unwrap_err();
                assert!(problem.contains(told), "{text}: {problem}");
            }
        }
        assert!(speeds("| test | t/s |\n| tg24 | inf |").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_command_that_does_not_do_it_is_named_with_what_it_did() {
        let stop = AtomicBool::new(false);
        let sentence = |command: &str| run(command, &stop).unwrap_err().to_string();
        let failed = sentence("exit 3");
        assert!(
            failed.contains("`exit 3` failed (exit status: 3)"),
            "{failed}"
        );
        let silent = sentence("echo 12");
        assert!(
            silent.contains("`echo 12` printed no speed") && silent.contains("llama-bench"),
            "{silent}"
        );
        let speeds = run("printf '| test | t/s |\\n| tg8 | 2.5 ± 0.1 |\\n'", &stop).unwrap();
        assert_eq!(speeds, [speed(Test::Answer(8), 2.5)]);
    }

    /// Waits until a process has ended, or fails.
    #[cfg(target_os = "linux")]
    fn ends(pid: &str) {
        let is_there = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            // One that nobody has waited for yet has ended all the same.
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        let since = Instant::now();
        while is_there() {
            assert!(since.elapsed() < Duration::from_secs(60), "{pid} runs on");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn whatever_a_command_does_it_ends_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        // Its child writes nothing and does not end by itself; then it goes on in its own way.
        let child = format!("sleep 100000 & echo $! > '{}'", file.display());
        let pid = || std::fs::read_to_string(&file).unwrap();
        let never = AtomicBool::new(false);
        let hour = Duration::from_secs(3600);

        let endless = format!("{child}; yes");
        let sentence = printed(&endless, &never, hour).unwrap_err().to_string();
        assert!(sentence.contains("printed more than 4 MiB"), "{sentence}");
        ends(&pid());

        let slow = format!("{child}; wait");
        let sentence = printed(&slow, &never, Duration::from_millis(500))
            .unwrap_err()
            .to_string();
        assert!(sentence.contains("was stopped"), "{sentence}");
        ends(&pid());

        // One that ends by itself leaves nothing behind either, well or not, and also where nobody of its group waits for the end any more.
        let quiet = child.replace("100000", "100000 >/dev/null 2>&1");
        for (end, is_well) in [("exit 0", true), ("exit 3", false)] {
            for before in ["true", "kill -KILL $!"] {
                let left = format!("{before}; {quiet}; {end}");
                let ended = printed(&left, &never, hour);
                assert_eq!(ended.is_ok(), is_well, "{left}: {ended:?}");
                ends(&pid());
            }
        }

        // Nor does what went into a session of its own; and what holds the output is not waited for for ever.
        let said = "printf '| test | t/s |\\n| tg8 | 2.5 |\\n'";
        for output in [">/dev/null 2>&1", ""] {
            let away = format!(
                "{said}; setsid sh -c 'echo $$ > \"$0\"; exec sleep 100000' '{0}' {output} & while ! test -s '{0}'; do sleep 0.01; done",
                file.display()
            );
            std::fs::remove_file(&file).unwrap();
            let text = printed(&away, &never, hour).unwrap();
            assert_eq!(speeds(&text), Ok(vec![speed(Test::Answer(8), 2.5)]));
            ends(&pid());
        }

        std::fs::remove_file(&file).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| printed(&slow, &stop, hour));
            while std::fs::read_to_string(&file)
                .unwrap_or_default()
                .is_empty()
            {
                std::thread::sleep(LOOK_EVERY);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(matches!(run.join().unwrap(), Err(Error::Stopped)));
        });
        ends(&pid());
    }

    #[test]
    fn what_ended_because_it_was_stopped_has_not_failed() {
        let stop = AtomicBool::new(true);
        for command in ["exit 3", "kill -KILL $$", "kill -KILL 0"] {
            let ended = printed(command, &stop, Duration::from_secs(3600));
            assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
        }
    }
}
