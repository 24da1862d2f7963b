//! What has a checksum, and whether it matches: dense tensors when they are asked for, an expert's record the first time it is read.
//!
//! Here too, and nowhere else, FP8 codes that are no numbers are refused: whichever way a file came, its weights pass here before anything is
//! multiplied with them, and products take such a code for 480 (see [`e4m3_nan`]). A conversion keeps them as they are, and
//! [`verify`](crate::verify()) names them.

use std::sync::atomic::Ordering;

use fastar_kernels::format::e4m3_nan;
use twox_hash::xxhash3_64::Hasher;

use super::{Container, Text};
use crate::error::{Error, Result, shown};
use crate::layout::Dtype;
use crate::verify::{CheckedPart, Part};

impl Container {
    /// Checks one dense tensor against its checksum, every time it is called: reads all its bytes. Call it once, when loading.
    pub fn verify_tensor(&self, name: &str) -> Result<()> {
        let index = self.find(name).ok_or_else(|| Error::NoSuchTensor {
            name: self.name.clone(),
            tensor: name.to_owned(),
        })?;
        self.verify_entry(index)
    }

    /// Checks every dense tensor and every expert against its checksum: reads the whole file. `progress` gets bytes done and bytes in all.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let total = self.entries.iter().map(|entry| entry.bytes).sum::<u64>()
            + (self.layers * self.experts) as u64 * self.metadata.layout.bytes as u64;
        let mut done = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            self.verify_entry(index)?;
            done += entry.bytes;
            progress(done, total);
        }
        for layer in 0..self.layers {
            for expert in 0..self.experts {
                self.check_record(layer, expert, self.record(layer, expert))?;
                done += self.metadata.layout.bytes as u64;
                progress(done, total);
            }
        }
        Ok(())
    }

    /// One expert's record, exactly `expert_layout().bytes` long. Its checksum is verified on the first call for each
    /// expert; a damaged record is an error naming layer and expert.
    pub fn expert(&self, layer: usize, expert: usize) -> Result<&[u8]> {
        if layer >= self.layers || expert >= self.experts {
            return Err(Error::NoSuchExpert {
                name: self.name.clone(),
                layer,
                expert,
                layers: self.layers,
                experts: self.experts,
            });
        }
        let record = self.record(layer, expert);
        let index = layer * self.experts + expert;
        let (word, bit) = (&self.verified[index / 64], 1u64 << (index % 64));
        // Relaxed: the bit says something about bytes that never change; two threads may both verify, with the same outcome.
        if word.load(Ordering::Relaxed) & bit == 0 {
            self.check_record(layer, expert, record)?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(record)
    }

    /// Every part that has a checksum of its own, in the order of the index; none for version 2.
    pub(crate) fn checked_parts(&self) -> impl Iterator<Item = CheckedPart> + '_ {
        let tokenizer = match (&self.tokenizer, &self.checksums) {
            (Text::Here(range), Some(_)) if !range.is_empty() => Some(CheckedPart {
                part: Part::Tokenizer,
                offset: range.start,
                bytes: range.end - range.start,
                checksum: self.tokenizer_checksum,
                dtype: None,
            }),
            _ => None,
        };
        let checksums = self.checksums.clone();
        let entries = match checksums {
            Some(_) => self.entries.as_slice(),
            None => &[],
        };
        let dense = entries.iter().map(|entry| CheckedPart {
            part: Part::Tensor(entry.name.clone()),
            offset: entry.offset,
            bytes: entry.bytes,
            checksum: entry.checksum,
            dtype: Some(entry.dtype),
        });
        let (sums, _) = self.part(&checksums.unwrap_or(0..0)).as_chunks::<8>();
        let records = sums.iter().enumerate().map(|(number, sum)| CheckedPart {
            part: Part::Expert {
                layer: number / self.experts,
                expert: number % self.experts,
            },
            offset: self.records + (number * self.stride) as u64,
            bytes: self.metadata.layout.bytes as u64,
            checksum: u64::from_le_bytes(*sum),
            dtype: None,
        });
        tokenizer.into_iter().chain(dense).chain(records)
    }

    fn verify_entry(&self, index: usize) -> Result<()> {
        let entry = &self.entries[index];
        let (data, what) = (self.view(index).data, || {
            format!("tensor {}", shown(&entry.name))
        });
        if self.checksums.is_some() && Hasher::oneshot(data) != entry.checksum {
            return Err(Error::Checksum {
                name: self.name.clone(),
                what: what(),
            });
        }
        self.check_numbers(entry.dtype, data, what)
    }

    /// Refuses FP8 codes that are no numbers.
    fn check_numbers(&self, dtype: Dtype, data: &[u8], what: impl Fn() -> String) -> Result<()> {
        let found = match dtype {
            Dtype::F8E4m3 => e4m3_nan(data),
            _ => None,
        };
        match found {
            None => Ok(()),
            Some(at) => Err(Error::NotANumber {
                name: self.name.clone(),
                what: what(),
                at,
            }),
        }
    }

    fn check_record(&self, layer: usize, expert: usize, record: &[u8]) -> Result<()> {
        let Some(checksums) = &self.checksums else {
            // Version 2 has none, but its converter wrote zeros for an expert it did not find.
            return match record.iter().any(|&b| b != 0) {
                true => Ok(()),
                false => Err(Error::Original {
                    message: format!(
                        "{} has nothing but zeros for expert {expert} of layer {layer}: it was missing when the file was made. Download the file again, or convert the original checkpoint with `fastar convert`.",
                        self.name
                    ),
                }),
            };
        };
        let at = (layer * self.experts + expert) as u64 * 8 + checksums.start;
        let stored = self.part(&(at..at + 8));
        if Hasher::oneshot(record).to_le_bytes() != stored {
            return Err(Error::Checksum {
                name: self.name.clone(),
                what: format!("expert {expert} of layer {layer}"),
            });
        }
        for (part, matrix) in self.metadata.layout.parts() {
            let data = &record[matrix.data.clone()];
            self.check_numbers(matrix.dtype, data, || {
                format!("tensor \"layers.{layer}.ffn.experts.{expert}.{part}.weight\"")
            })?;
        }
        Ok(())
    }

    fn record(&self, layer: usize, expert: usize) -> &[u8] {
        let start = self.records as usize + (layer * self.experts + expert) * self.stride;
        &self.bytes[start..start + self.metadata.layout.bytes]
    }
}
