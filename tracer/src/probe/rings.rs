//! The two rings and the counters of what did not fit.

use std::os::fd::{AsRawFd, RawFd};
use std::{fmt, io};

use aya::Ebpf;
use aya::maps::{Map, MapData, PerCpuArray, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracer_ebpf::{counter, name};

use super::ProbeError;
use crate::record::{self, Record};

/// The kernel's rings, read by this process.
#[derive(Debug)]
pub(crate) struct Rings {
    signs: AsyncFd<Ring>,
    bytes: AsyncFd<Ring>,
    counters: Counters,
    /// Losses reported so far, by counter.
    reported: [u64; counter::COUNT as usize],
    /// Slots that held no record that this version can read.
    undecoded: u64,
}

struct Ring(RingBuf<MapData>);
struct Counters(PerCpuArray<MapData, u64>);

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

/// Counters that are losses, not totals.
const LOSSES: [u32; 4] = [counter::SIGNS_LOST, counter::BYTES_LOST, counter::UNREADABLE, counter::MAP_FULL];

impl Rings {
    /// Takes the rings out of the object; needs a tokio runtime.
    ///
    /// # Errors
    /// [`ProbeError::Map`], [`ProbeError::Rings`].
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Rings, ProbeError> {
        let counters = take(ebpf, name::COUNTERS)?;
        let counters = PerCpuArray::try_from(counters)
            .map(Counters)
            .map_err(|source| ProbeError::Map { name: name::COUNTERS, source })?;
        let (signs, bytes) = (ring(ebpf, name::SIGNS)?, ring(ebpf, name::BYTES)?);
        Ok(Rings { signs, bytes, counters, reported: [0; counter::COUNT as usize], undecoded: 0 })
    }

    /// Waits until one of the rings is so full that the programs call for help. Cancel safe.
    pub(crate) async fn urgent(&self) -> io::Result<()> {
        let mut guard = tokio::select! {
            guard = self.signs.readable() => guard?,
            guard = self.bytes.readable() => guard?,
        };
        guard.clear_ready();
        Ok(())
    }

    /// Takes out all that is there.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Record)) {
        for ring in [&mut self.signs, &mut self.bytes] {
            let ring = &mut ring.get_mut().0;
            while let Some(slot) = ring.next() {
                let record = record::len_of(&slot).and_then(|len| slot.get(..len)).map(record::decode);
                match record {
                    Some(Ok(record)) => each(record),
                    Some(Err(_)) | None => self.undecoded += 1,
                }
            }
        }
    }

    /// Losses since the last call: counter and number.
    ///
    /// # Errors
    /// [`ProbeError::Map`].
    pub(crate) fn losses(&mut self) -> Result<Vec<(u32, u64)>, ProbeError> {
        let mut losses = Vec::new();
        for index in LOSSES {
            let values =
                self.counters.0.get(&index, 0).map_err(|source| ProbeError::Map { name: name::COUNTERS, source })?;
            let total = values.iter().sum::<u64>() + if index == counter::SIGNS_LOST { self.undecoded } else { 0 };
            let reported = &mut self.reported[index as usize];
            if total > *reported {
                losses.push((index, total - *reported));
                *reported = total;
            }
        }
        Ok(losses)
    }
}

fn take(ebpf: &mut Ebpf, name: &str) -> Result<Map, ProbeError> {
    ebpf.take_map(name).ok_or_else(|| ProbeError::Object(format!("it has no map {name}")))
}

fn ring(ebpf: &mut Ebpf, name: &'static str) -> Result<AsyncFd<Ring>, ProbeError> {
    let ring = RingBuf::try_from(take(ebpf, name)?).map_err(|source| ProbeError::Map { name, source })?;
    // SAFETY: the ring owns its descriptor, always names the same one, and closes it only when it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(Ring(ring), Interest::READABLE) };
    registered.map_err(|error| ProbeError::Rings(error.into()))
}
