//! The models the app knows where to find, the recommended one first.
//!
//! Sizes are sums over the shards as the hub lists them. A container keeps the checkpoint's own precision, so that it has the size of the shards but
//! for their headers. While it is made, two shards lie beside it at most.

use fastar_api::CatalogueEntry;

struct Known {
    id: &'static str,
    name: &'static str,
    about: &'static str,
    repository: &'static str,
    /// Bytes of all shards.
    shards: u64,
    largest_shard: u64,
    /// Bytes of the shards that hold the drafter and nothing else.
    drafter: u64,
    /// A container already; its sizes are what the project that made it says of them.
    ready_made: bool,
}

/// Bytes of the 45 shards that every version has: embedding, 43 layers, head.
const WITHOUT_DRAFTER: u64 = 156_023_192_948;
/// The three shards of the DSpark drafter.
const DSPARK: [u64; 3] = [3_610_455_184, 3_560_111_960, 3_692_775_244];
/// The shard of the first version's multi-token prediction.
const MTP: u64 = 3_593_956_092;
/// The largest shard of a layer (the third one has the hash table as well).
const LARGEST_LAYER: u64 = 3_596_229_272;

const KNOWN: &[Known] = &[
    Known {
        id: "flash-0731",
        name: "DeepSeek V4 Flash 0731",
        about: "The newest version, of 31 July, with a drafter for speculative decoding.",
        repository: "deepseek-ai/DeepSeek-V4-Flash-0731",
        shards: WITHOUT_DRAFTER + DSPARK[0] + DSPARK[1] + DSPARK[2],
        largest_shard: DSPARK[2],
        drafter: DSPARK[0] + DSPARK[1] + DSPARK[2],
        ready_made: false,
    },
    Known {
        id: "flash-dspark",
        name: "DeepSeek V4 Flash DSpark",
        about: "The version of 27 June, with a drafter for speculative decoding.",
        repository: "deepseek-ai/DeepSeek-V4-Flash-DSpark",
        shards: WITHOUT_DRAFTER + DSPARK[0] + DSPARK[1] + DSPARK[2],
        largest_shard: DSPARK[2],
        drafter: DSPARK[0] + DSPARK[1] + DSPARK[2],
        ready_made: false,
    },
    Known {
        id: "flash-preview",
        name: "DeepSeek V4 Flash Preview",
        about: "The first version, of 24 April.",
        repository: "deepseek-ai/DeepSeek-V4-Flash",
        shards: WITHOUT_DRAFTER + MTP,
        largest_shard: LARGEST_LAYER,
        drafter: MTP,
        ready_made: false,
    },
    Known {
        id: "original",
        name: "DeepSeek V4 Flash DSpark, ready-made",
        about: "Made by the FaStar research project, in its older file format. Exact for conversations of up to 2,048 tokens.",
        repository: "RaffaelloMolinari/Deepseek-V4-Flash-DSpark-FST",
        shards: 174_800_000_000,
        largest_shard: 0,
        drafter: 13_400_000_000,
        ready_made: true,
    },
];

/// All of them, the recommended one first.
pub fn entries() -> Vec<CatalogueEntry> {
    KNOWN
        .iter()
        .map(|known| CatalogueEntry {
            id: known.id.to_owned(),
            name: known.name.to_owned(),
            about: known.about.to_owned(),
            repository: known.repository.to_owned(),
            file: file_of(known.repository),
            download_bytes: known.shards,
            disk_bytes: known.shards,
            peak_bytes: known.shards + 2 * known.largest_shard,
            drafter_bytes: Some(known.drafter),
            approximate: known.ready_made,
        })
        .collect()
}

/// File name that the container of a repository gets: the repository's own name.
pub fn file_of(repository: &str) -> String {
    let name = repository
        .rsplit('/')
        .next()
        .unwrap_or(repository)
        .trim_end_matches(".fst");
    let name: String = name
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => c,
            _ => '-',
        })
        .collect();
    let name = name.trim_start_matches('.');
    format!("{}.fst", if name.is_empty() { "model" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_model_comes_first_and_the_sizes_are_those_of_the_shards() {
        let all = entries();
        assert_eq!(all[0].repository, "deepseek-ai/DeepSeek-V4-Flash-0731");
        assert_eq!(all[0].file, "DeepSeek-V4-Flash-0731.fst");
        // As the hub lists them: 48 shards, and 46 for the first version.
        let sizes: Vec<_> = all.iter().map(|entry| entry.download_bytes).collect();
        // The last one's are known only roughly, and say so.
        assert_eq!(
            sizes,
            [
                166_886_535_336,
                166_886_535_336,
                159_617_149_040,
                174_800_000_000
            ]
        );
        let approximate: Vec<_> = all.iter().map(|entry| entry.approximate).collect();
        assert_eq!(approximate, [false, false, false, true]);
        assert_eq!(all[0].drafter_bytes, Some(10_863_342_388));
        assert_eq!(all[0].peak_bytes, 174_272_085_824);
        for entry in &all {
            assert_eq!(entry.file, file_of(&entry.repository));
        }
    }

    #[test]
    fn a_file_name_never_leaves_the_folder() {
        assert_eq!(file_of("a/b"), "b.fst");
        assert_eq!(file_of("a/.."), "model.fst");
        assert_eq!(file_of("a/.hidden"), "hidden.fst");
        assert_eq!(file_of("a/x\\y:z"), "x-y-z.fst");
        assert_eq!(file_of("a/model.fst"), "model.fst");
    }
}
