//! "Equals a cold run": the judge of everything that reuses state.

use std::path::Path;
use std::process::Command;

use safetensors::SafeTensors;

/// The greedy continuation of `prompt` by a fresh process of the `fastar` command, which has seen nothing else.
pub fn cold_run(fastar: &Path, model: &Path, prompt: &[u32], tokens: usize) -> Vec<u32> {
    let folder = tempfile::tempdir().unwrap();
    let (ids, out) = (
        folder.path().join("ids.json"),
        folder.path().join("out.safetensors"),
    );
    std::fs::write(&ids, serde_json::to_string(prompt).unwrap()).unwrap();
    let run = Command::new(fastar)
        .arg("logits")
        .args(["--decode", &tokens.to_string()])
        .arg("--model")
        .arg(model)
        .arg("--tokens")
        .arg(&ids)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let bytes = std::fs::read(&out).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let greedy = tensors.tensor("greedy").unwrap();
    let (ids, _) = greedy.data().as_chunks::<8>();
    ids.iter()
        .map(|b| u32::try_from(i64::from_le_bytes(*b)).unwrap())
        .collect()
}
