//! Where Linux keeps the limits of this process: the folders of its control groups. Which files in them matter is the business of who asks:
//! processors' time in [`processors`](crate::processors), memory in the engine's plan.

use std::fs;
use std::path::{Path, PathBuf};

/// A group that limits this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its files.
    pub folder: PathBuf,
    /// Version 2, where every controller has its files in one tree.
    pub is_v2: bool,
}

/// The groups of this process in which `controller` (`cpu`, `memory`) may set a limit, and all groups above them, of both versions. A limit of any of
/// them counts.
///
/// `root` is `/`; tests put a tree of files in its place.
pub fn of_this_process(root: &Path, controller: &str) -> Vec<Group> {
    let text = |path: &str| fs::read_to_string(root.join(path));
    let mounts: Vec<Mount> = match text("proc/self/mountinfo") {
        Ok(text) => text.lines().filter_map(|line| mount(root, line)).collect(),
        // Where they are nearly everywhere.
        Err(_) => vec![Mount {
            is_v2: true,
            controllers: Vec::new(),
            shown: "/".to_owned(),
            at: root.join("sys/fs/cgroup"),
        }],
    };
    let mut found = Vec::new();
    for line in text("proc/self/cgroup").unwrap_or_default().lines() {
        // hierarchy:controllers:path
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        for mount in &mounts {
            let v2 = controllers.is_empty() && mount.is_v2;
            let v1 = !mount.is_v2
                && controllers.split(',').any(|c| c == controller)
                && mount.controllers.iter().any(|c| c == controller);
            if v1 || v2 {
                found.extend(mount.groups(path));
            }
        }
    }
    found
}

/// A mounted tree of control groups.
struct Mount {
    is_v2: bool,
    controllers: Vec<String>,
    /// The group that is seen at the top.
    shown: String,
    at: PathBuf,
}

fn mount(root: &Path, line: &str) -> Option<Mount> {
    // id parent device root mount-point options optional... - type source options
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (shown, at) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1).unwrap_or(""));
    matches!(kind, "cgroup" | "cgroup2").then(|| Mount {
        is_v2: kind == "cgroup2",
        controllers: options.split(',').map(str::to_owned).collect(),
        shown: unescaped(shown),
        at: root.join(unescaped(at).trim_start_matches('/')),
    })
}

/// A name as it is, of which the list of mounts has spaces and the like as a backslash and three octal digits.
fn unescaped(name: &str) -> String {
    let mut parts = name.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                whole.push(code.into());
                whole.push_str(&part[3..]);
            }
            None => {
                whole.push('\\');
                whole.push_str(part);
            }
        }
    }
    whole
}

impl Mount {
    /// The group at `path` and those above it, as far as this mount shows them.
    fn groups(&self, path: &str) -> impl Iterator<Item = Group> {
        // A container may see only part of the tree: its own group then is the top of the mount.
        let below = path
            .strip_prefix(self.shown.trim_end_matches('/'))
            .filter(|below| below.is_empty() || below.starts_with('/'))
            .filter(|below| !below.split('/').any(|part| part == ".."))
            .unwrap_or("");
        let own = self.at.join(below.trim_start_matches('/'));
        own.ancestors()
            .take_while(|folder| folder.starts_with(&self.at))
            .map(|folder| Group {
                folder: folder.to_owned(),
                is_v2: self.is_v2,
            })
            .collect::<Vec<_>>()
            .into_iter()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The folders found below a root of its own, those of version 2 marked.
    fn found(cgroup: &str, mountinfo: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/self/cgroup"), cgroup).unwrap();
        fs::write(root.join("proc/self/mountinfo"), mountinfo).unwrap();
        let found = of_this_process(root, "memory");
        found
            .iter()
            .map(|group| {
                let folder = group.folder.strip_prefix(root).unwrap();
                let mark = if group.is_v2 { "2 " } else { "1 " };
                format!("{mark}{}", folder.display())
            })
            .collect()
    }

    const V2: &str = "24 1 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_group_and_those_above_it_are_found() {
        assert_eq!(
            found("0::/user.slice/app.scope\n", V2),
            [
                "2 sys/fs/cgroup/user.slice/app.scope",
                "2 sys/fs/cgroup/user.slice",
                "2 sys/fs/cgroup"
            ]
        );
        let v1 = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            found("4:cpu:/x\n3:memory:/docker/abc\n0::/y\n", v1),
            [
                "1 sys/fs/cgroup/memory/docker/abc",
                "1 sys/fs/cgroup/memory/docker",
                "1 sys/fs/cgroup/memory",
                "2 sys/fs/cgroup/unified/y",
                "2 sys/fs/cgroup/unified"
            ]
        );
    }

    #[test]
    fn where_only_part_of_the_tree_is_shown_its_top_is_the_own_group() {
        let part = "30 24 0:26 /docker/abc /cg rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found("0::/docker/abc\n", part), ["2 cg"]);
        assert_eq!(found("0::/docker/abc/in\n", part), ["2 cg/in", "2 cg"]);
        // Another group, only its name begins the same.
        assert_eq!(found("0::/docker/abcd\n", part), ["2 cg"]);
        assert_eq!(found("0::/../..\n", V2), ["2 sys/fs/cgroup"]);
    }

    #[test]
    fn names_with_spaces_and_backslashes_are_found() {
        let odd = "30 24 0:26 /my\\040app /the\\134groups rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            found("0::/my app/in\n", odd),
            ["2 the\\groups/in", "2 the\\groups"]
        );
        assert_eq!(unescaped("a\\9\\04\\777\\"), "a\\9\\04\\777\\");
    }

    #[test]
    fn where_the_mounts_cannot_be_read_the_usual_place_is_looked_at() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "0::/app\n").unwrap();
        let usual = root.path().join("sys/fs/cgroup");
        let folders: Vec<_> = of_this_process(root.path(), "memory")
            .into_iter()
            .map(|group| group.folder)
            .collect();
        assert_eq!(folders, [usual.join("app"), usual]);
    }

    #[test]
    fn what_makes_no_sense_is_no_group() {
        assert_eq!(found("", ""), [""; 0]);
        assert_eq!(
            found("\n0\n0:\n::\n", "a - b\n - \n1 2 3 4 5 6 - ext4 x y\n"),
            [""; 0]
        );
    }
}
