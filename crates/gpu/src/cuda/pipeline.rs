//! Rounds on a CUDA device: streams with their own memory.
//!
//! Pinned blocks are copied by the device directly; others go through pinned memory of the slot, and so do outputs that
//! are added to. With [`CudaTransfer::Mapped`] nothing is copied to the device: the kernel works on pinned memory, on
//! the blocks themselves if they are evenly spaced there, otherwise on the slot's memory.

use super::device::CudaTransfer;
use super::kernel::{Blocks, CudaKernel};
use super::memory::{begin_download, begin_upload, is_pinned};
use super::slot::Slot;
use crate::error::{Api, GpuError};
use crate::rounds::{Copies, RoundRun, Slots, copy_in_parallel, round_bytes};
use crate::shape::BlockCopy;
use cudarc::driver::sys::CUdeviceptr;
use gabion_engine::Mode;
use std::ops::Range;

pub(super) fn run(
    kernel: &CudaKernel,
    len: usize,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> Result<(), GpuError> {
    if len == 0 || outputs.is_empty() {
        return Ok(());
    }
    let (device, prepared) = (&kernel.device.0, &kernel.prepared);
    let (limits, most) = (device.limits, device.pool.most());
    let way = Way::of(kernel, len, inputs, outputs);
    let share = limits.device_bytes / most;
    let share = if way.staged == 0 { share } else { share.min(limits.pinned_bytes / most) };
    let unit = prepared.unit();
    let bytes = match way.in_place {
        // A single launch over all bytes: there is nothing to overlap with.
        Some(_) => len,
        None => round_bytes(len, unit, prepared.blocks(), share, way.copies),
    };
    let slots =
        device.bind().and_then(|()| device.pool.take(len.div_ceil(bytes), || Slot::new(&device.context)));
    let mut in_flight = slots.map(|slots| InFlight { kernel, slots, way });
    let course = RoundRun {
        api: Api::Cuda,
        plan: &prepared.plan,
        len,
        unit,
        bytes,
        faults: device.faults.as_ref(),
        ledger: &device.ledger,
    };
    let slots = in_flight.as_mut().map(|slots| slots as &mut dyn Slots).map_err(|error| error.clone());
    course.run(slots, inputs, outputs)
}

/// Transfer plan of a run.
#[derive(Clone, Copy)]
struct Way {
    mapped: bool,
    inputs_pinned: bool,
    /// The device copies outputs directly into the blocks.
    direct: bool,
    /// Number of blocks that go through pinned memory of the slot.
    staged: usize,
    /// Distance of blocks in bytes, if the kernel works on the blocks themselves.
    in_place: Option<usize>,
    copies: Copies,
}

impl Way {
    fn of(kernel: &CudaKernel, len: usize, inputs: &[&[u8]], outputs: &[&mut [u8]]) -> Way {
        let prepared = &kernel.prepared;
        let mapped = kernel.device.0.transfer == CudaTransfer::Mapped;
        let adds = prepared.shape.mode == Mode::Add;
        let inputs_pinned = inputs.iter().all(|block| is_pinned(block));
        let outputs_pinned = !adds && outputs.iter().all(|block| is_pinned(block));
        let spacing = evenly_spaced(inputs.iter().map(|block| block.as_ptr().addr()))
            .filter(|&spacing| {
                outputs.len() == 1
                    || evenly_spaced(outputs.iter().map(|block| block.as_ptr().addr())) == Some(spacing)
            })
            .filter(|spacing| spacing.is_multiple_of(16) && prepared.stride(len) == len);
        let aligned =
            inputs.iter().map(|block| block.as_ptr()).chain(outputs.iter().map(|block| block.as_ptr()));
        let aligned = aligned.into_iter().all(|address| address.addr().is_multiple_of(16));
        let in_place = spacing.filter(|_| mapped && inputs_pinned && outputs_pinned && aligned);
        let staged = match (mapped, in_place) {
            (true, Some(_)) => 0,
            (true, None) => prepared.blocks(),
            (false, _) => {
                (if inputs_pinned { 0 } else { inputs.len() })
                    + (if outputs_pinned { 0 } else { outputs.len() })
            }
        };
        let direct = if mapped { in_place.is_some() } else { outputs_pinned };
        // In the slot's memory blocks are evenly spaced.
        let together = prepared.shape.copy(len).rows == 1
            && (!inputs_pinned || are_evenly_spaced(inputs.iter().map(|block| block.as_ptr())))
            && (!direct || are_evenly_spaced(outputs.iter().map(|block| block.as_ptr())));
        let copies = if together { Copies::Together } else { Copies::OnePerBlock };
        Way { mapped, inputs_pinned: inputs_pinned && !mapped, direct, staged, in_place, copies }
    }
}

/// The distance of neighbours, if it is constant; `None` for a single block.
fn evenly_spaced(addresses: impl Iterator<Item = usize>) -> Option<usize> {
    let addresses: Vec<usize> = addresses.collect();
    let spacing = addresses.get(1)?.checked_sub(*addresses.first()?)?;
    addresses.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(spacing)).then_some(spacing)
}

fn are_evenly_spaced(places: impl ExactSizeIterator<Item = *const u8>) -> bool {
    places.len() <= 1 || evenly_spaced(places.map(|place| place.addr())).is_some()
}

/// Starts the copies of blocks by calling `begin` with a block's index: a single copy if they are evenly spaced, since
/// every copy has a start-up cost.
fn copy_blocks(
    places: &[*mut u8],
    copy: BlockCopy,
    stride: usize,
    begin: impl Fn(usize, BlockCopy) -> Result<(), GpuError>,
) -> Result<(), GpuError> {
    let spacing = evenly_spaced(places.iter().map(|place| place.addr()));
    let spacing = spacing.filter(|spacing| copy.rows == 1 && (copy.width..MOST_PITCH).contains(spacing));
    let as_one =
        spacing.map(|host_pitch| BlockCopy { host_pitch, pitch: stride, rows: places.len(), ..copy });
    // A driver may refuse a copy that spans several allocations.
    if as_one.is_some_and(|all| begin(0, all).is_ok()) {
        return Ok(());
    }
    (0..places.len()).try_for_each(|block| begin(block, copy))
}

/// Largest pitch in bytes that the driver accepts.
const MOST_PITCH: usize = i32::MAX as usize;

struct InFlight<'a> {
    kernel: &'a CudaKernel,
    slots: Vec<Slot>,
    way: Way,
}

impl InFlight<'_> {
    /// Distance of blocks in the slot's pinned memory: the kernel's stride if it works there.
    fn spacing(&self, len: usize) -> usize {
        if self.way.mapped { self.kernel.prepared.stride(len) } else { len }
    }

    /// Layout of a block in the slot's pinned memory: that of the device if the kernel works there.
    fn staging(&self, len: usize) -> BlockCopy {
        let as_it_is = BlockCopy::whole(len);
        if self.way.mapped { self.kernel.prepared.shape.copy(len) } else { as_it_is }
    }

    /// Launches over host memory that the device accesses over the bus.
    fn launch_on_host(&mut self, slot: usize, blocks: Blocks, len: usize) -> Result<(), GpuError> {
        // SAFETY: pinned memory has the same address on the device. Each block has a stride, in place or in the slot,
        // and the slot is busy until it is synchronised.
        unsafe { self.kernel.start(&self.slots[slot].stream.clone(), blocks, len) }
    }
}

impl Slots for InFlight<'_> {
    fn count(&self) -> usize {
        self.slots.len()
    }

    fn make_room(&mut self, slot: usize, bytes: usize) -> Result<(), GpuError> {
        let prepared = &self.kernel.prepared;
        let context = &self.kernel.device.0.context;
        let staged = self.way.staged * self.spacing(bytes);
        if !self.way.mapped {
            self.slots[slot].device(context, prepared.blocks() * prepared.stride(bytes))?;
        }
        if staged > 0 {
            self.slots[slot].pinned(context, staged)?;
        }
        Ok(())
    }

    fn writes_directly(&self) -> bool {
        self.way.direct
    }

    fn begin(
        &mut self,
        slot: usize,
        part: Range<usize>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let (kernel, way, len) = (self.kernel, self.way, part.len());
        let (prepared, context) = (&kernel.prepared, &kernel.device.0.context);
        if let Some(stride) = way.in_place {
            let address = |block: *const u8| block.addr() as CUdeviceptr;
            let (inputs, outputs) = (&inputs[0][part.clone()], &outputs[0][part]);
            let (inputs, outputs) = (address(inputs.as_ptr()), address(outputs.as_ptr()));
            return self.launch_on_host(slot, Blocks { inputs, outputs, stride }, len);
        }
        let (copy, stride) = (prepared.shape.copy(len), prepared.stride(len));
        let (adds, spacing) = (prepared.shape.mode == Mode::Add, self.spacing(len));
        let form = self.staging(len);
        // Host address of each block: in place, or in pinned memory.
        let mut places: Vec<*mut u8> = Vec::with_capacity(prepared.blocks());
        if way.inputs_pinned {
            places.extend(inputs.iter().map(|block| block[part.clone()].as_ptr().cast_mut()));
        }
        if way.staged > 0 {
            let staging = self.slots[slot].pinned(context, way.staged * spacing)?;
            let mut pieces: Vec<&mut [u8]> = staging.chunks_mut(spacing).take(way.staged).collect();
            places.extend(pieces.iter_mut().map(|piece| piece.as_mut_ptr()));
            let sources = inputs.iter().map(|block| &block[part.clone()]).filter(|_| !way.inputs_pinned);
            let old = outputs.iter().map(|block| &block[part.clone()]).filter(|_| adds);
            let pairs = pieces.into_iter().zip(sources.chain(old));
            copy_in_parallel(pairs.flat_map(|(piece, block)| form.spread(piece, block)).collect());
        }
        if way.mapped {
            let (inputs_at, outputs_at) = (places[0], places[inputs.len()]);
            let (inputs, outputs) = (inputs_at.addr() as CUdeviceptr, outputs_at.addr() as CUdeviceptr);
            return self.launch_on_host(slot, Blocks { inputs, outputs, stride }, len);
        }
        if way.direct {
            places.extend(outputs.iter_mut().map(|block| block[part.clone()].as_mut_ptr()));
        }
        let slot = &mut self.slots[slot];
        let stream = slot.stream.clone();
        let memory = slot.device(context, prepared.blocks() * stride)?;
        let on_device = |block: usize| memory.at(block * stride);
        let uploads = if adds { prepared.blocks() } else { inputs.len() };
        let (up, down) = (&places[..uploads], &places[inputs.len()..]);
        copy_blocks(up, copy, stride, |block, rows| {
            // SAFETY: the host blocks have `len` bytes each and the device memory `stride`, and both outlive the
            // synchronisation of this slot, at the latest on drop; neither is written before.
            unsafe { begin_upload(&stream, on_device(block), up[block], rows) }
        })?;
        let launch = Blocks { inputs: on_device(0), outputs: on_device(inputs.len()), stride };
        // SAFETY: each block has `stride` bytes of this slot's memory, and the slot is busy until it is synchronised.
        unsafe { kernel.start(&stream, launch, len)? };
        copy_blocks(down, copy, stride, |block, rows| {
            // SAFETY: as for the uploads; the outputs are borrowed mutably for the whole run.
            unsafe { begin_download(&stream, down[block], on_device(inputs.len() + block), rows) }
        })
    }

    fn wait(&mut self, slot: usize) -> Result<(), GpuError> {
        self.slots[slot].wait()
    }

    fn collect(
        &mut self,
        slot: usize,
        part: Range<usize>,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        if self.way.direct {
            return Ok(());
        }
        let (spacing, form) = (self.spacing(part.len()), self.staging(part.len()));
        if let (_, Some(staging)) = self.slots[slot].held() {
            let results = staging.chunks(spacing).take(self.way.staged).skip(self.way.staged - outputs.len());
            let places = outputs.iter_mut().map(|block| &mut block[part.clone()]);
            copy_in_parallel(places.zip(results).flat_map(|(to, from)| form.gather(to, from)).collect());
        }
        Ok(())
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        for slot in &self.slots {
            // The device must be done with the blocks before they are released. A device that fails to synchronise does
            // no more work.
            let _ = slot.wait();
        }
        self.kernel.device.0.pool.give_back(std::mem::take(&mut self.slots));
    }
}

#[cfg(test)]
mod tests {
    use super::{copy_blocks, evenly_spaced};
    use crate::error::GpuError;
    use crate::shape::BlockCopy;
    use std::cell::RefCell;

    #[test]
    fn spacing_is_even_or_none() {
        assert_eq!(evenly_spaced([16, 48, 80].into_iter()), Some(32));
        assert_eq!(evenly_spaced([16, 48, 96].into_iter()), None);
        assert_eq!(evenly_spaced([48, 16].into_iter()), None);
        assert_eq!(evenly_spaced([16].into_iter()), None);
    }

    /// The copies for blocks at these addresses, with a driver that refuses copies of several rows or not.
    fn copied(addresses: &[usize], copy: BlockCopy, refuses: bool) -> Vec<(usize, BlockCopy)> {
        let places: Vec<*mut u8> = addresses.iter().map(|&at| std::ptr::without_provenance_mut(at)).collect();
        let begun = RefCell::new(Vec::new());
        let begin = |block, rows: BlockCopy| {
            if refuses && rows.rows > copy.rows {
                return Err(GpuError::Wrong { output: 0, byte: 0 });
            }
            begun.borrow_mut().push((block, rows));
            Ok(())
        };
        copy_blocks(&places, copy, 64, begin).unwrap();
        begun.into_inner()
    }

    #[test]
    fn blocks_that_lie_evenly_spaced_are_one_copy() {
        let whole = BlockCopy::whole(10);
        let each = [(0, whole), (1, whole), (2, whole)];
        let one = BlockCopy { width: 10, host_pitch: 32, pitch: 64, rows: 3 };
        assert_eq!(copied(&[16, 48, 80], whole, false), [(0, one)]);
        assert_eq!(copied(&[16, 48, 80], whole, true), each);
        assert_eq!(copied(&[16, 48, 96], whole, false), each);
        // Overlapping blocks, and packets, which are rows already.
        assert_eq!(copied(&[16, 20, 24], whole, false), each);
        let packets = BlockCopy { width: 5, host_pitch: 5, pitch: 16, rows: 2 };
        assert_eq!(copied(&[16, 48, 80], packets, false), [(0, packets), (1, packets), (2, packets)]);
    }
}
