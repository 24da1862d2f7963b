//! What has a checksum, and whether it matches: dense tensors and experts when they are read.

use std::borrow::Cow;
use std::hash::Hasher as _;
use std::ops::Range;
use std::sync::atomic::Ordering;

use fastar_kernels::format::e4m3_nan;
use twox_hash::xxhash3_64::Hasher;

use super::{Container, Text};
use crate::error::{Error, Result, shown};
use crate::layout::Dtype;
use crate::verify::{CheckedPart, Part};

/// XXH3-64 of so many zeros: less than a record's alignment between two parts.
fn hash_of_zeros(bytes: u64) -> u64 {
    let mut hasher = Hasher::new();
    let zeros = [0; 4096];
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(zeros.len() as u64);
        hasher.write(&zeros[..piece as usize]);
        left -= piece;
    }
    hasher.finish()
}

impl Container {
    /// The bytes of a dense tensor, compared with its checksum.
    pub fn read(&self, name: &str) -> Result<Cow<'static, [u8]>> {
        let index = self.index(name)?;
        let entry = &self.entries[index];
        let data = self
            .source(index)
            .read(entry.offset..entry.offset + entry.bytes)?;
        self.check_tensor(name, &data)?;
        Ok(data)
    }

    /// The same piece by piece, for tensors that may be large. A checksum that does not match is an error after the last piece.
    pub fn read_in_pieces(
        &self,
        name: &str,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let index = self.index(name)?;
        let (entry, source) = (&self.entries[index], self.source(index));
        let (mut hasher, mut odd, mut done) = (Hasher::new(), None, 0);
        let place = entry.offset..entry.offset + entry.bytes;
        source.each_piece(place, &mut |piece| {
            hasher.write(piece);
            if entry.dtype == Dtype::F8E4m3 {
                odd = odd.or_else(|| e4m3_nan(piece).map(|at| at + done));
            }
            done += piece.len();
            each(piece)
        })?;
        self.check_tensor_hash(name, || hasher.finish())?;
        match odd {
            None => Ok(()),
            Some(at) => Err(Error::NotANumber {
                name: self.name.clone(),
                what: format!("tensor {}", shown(name)),
                at,
            }),
        }
    }

    /// Checks every dense tensor and every expert against its checksum: reads the whole file. `progress` gets bytes done and bytes in all.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let total = self.entries.iter().map(|entry| entry.bytes).sum::<u64>()
            + (self.layers * self.experts) as u64 * self.metadata.layout.bytes as u64;
        let mut done = 0;
        for entry in &self.entries {
            self.read_in_pieces(&entry.name, &mut |_| Ok(()))?;
            done += entry.bytes;
            progress(done, total);
        }
        for layer in 0..self.layers {
            for expert in 0..self.experts {
                self.expert(layer, expert)?;
                done += self.metadata.layout.bytes as u64;
                progress(done, total);
            }
        }
        Ok(())
    }

    /// One expert's record, exactly `expert_layout().bytes` long and compared with its checksum; a damaged record is an error naming layer
    /// and expert. Borrowed where the container is in memory, and then compared only the first time.
    pub fn expert(&self, layer: usize, expert: usize) -> Result<Cow<'static, [u8]>> {
        if layer >= self.layers || expert >= self.experts {
            return Err(Error::NoSuchExpert {
                name: self.name.clone(),
                layer,
                expert,
                layers: self.layers,
                experts: self.experts,
            });
        }
        let start = self.records.offset(layer, expert);
        let record = self.bytes.read(start..start + self.records.bytes as u64)?;
        let index = layer * self.experts + expert;
        let (word, bit) = (&self.verified[index / 64], 1u64 << (index % 64));
        // Relaxed: the bit says something about bytes that never change; two threads may both verify, with the same outcome.
        let is_known =
            matches!(record, Cow::Borrowed(_)) && word.load(Ordering::Relaxed) & bit != 0;
        if !is_known {
            self.records.check(layer, expert, &record)?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(record)
    }

    fn index(&self, name: &str) -> Result<usize> {
        self.find(name).ok_or_else(|| Error::NoSuchTensor {
            name: self.name.clone(),
            tensor: name.to_owned(),
        })
    }

    /// Every part that has a checksum of its own, in the order of the index; none for version 2.
    pub(crate) fn checked_parts(&self) -> impl Iterator<Item = CheckedPart> + '_ {
        let tokenizer = match &self.tokenizer {
            Text::Here(range, checksum) if !range.is_empty() => Some(CheckedPart {
                part: Part::Tokenizer,
                offset: range.start,
                bytes: range.end - range.start,
                checksum: *checksum,
                dtype: None,
            }),
            _ => None,
        };
        let checksums = self.records.checksums.as_deref();
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
        let sums = checksums.unwrap_or_default();
        let records = sums.iter().enumerate().map(|(number, sum)| CheckedPart {
            part: Part::Expert {
                layer: number / self.experts,
                expert: number % self.experts,
            },
            offset: self.records.first + number as u64 * self.records.stride,
            bytes: self.metadata.layout.bytes as u64,
            checksum: *sum,
            dtype: None,
        });
        let padding = self.padding().into_iter().map(|range| {
            let bytes = range.end - range.start;
            CheckedPart {
                part: Part::Padding(range.start),
                offset: range.start,
                bytes,
                checksum: hash_of_zeros(bytes),
                dtype: None,
            }
        });
        tokenizer
            .into_iter()
            .chain(dense)
            .chain(records)
            .chain(padding)
    }

    /// What lies between the parts and belongs to none. After an upgrade in place that may be anything, and is not listed.
    fn padding(&self) -> Vec<Range<u64>> {
        let Some(checksums) = self.checksums.clone().filter(|_| !self.metadata.upgraded) else {
            return Vec::new();
        };
        // Header and index were compared with their checksum when the file was opened; in a converted file they follow each other.
        let header = 0..checksums.end;
        let end_of_file = self.bytes.length();
        let mut used: Vec<Range<u64>> = [header, end_of_file..end_of_file].into();
        if let Text::Here(range, _) = &self.tokenizer {
            used.push(range.clone());
        }
        used.extend(self.entries.iter().map(|e| e.offset..e.offset + e.bytes));
        let bytes = self.metadata.layout.bytes as u64;
        let experts = (self.layers * self.experts) as u64;
        used.extend((0..experts).map(|number| {
            let start = self.records.first + number * self.records.stride;
            start..start + bytes
        }));
        used.sort_by_key(|range| range.start);
        let mut padding = Vec::new();
        let mut end = 0;
        for range in used {
            if range.start > end {
                padding.push(end..range.start);
            }
            end = end.max(range.end);
        }
        padding
    }
}
