//! A program and its maps, loaded from the bytes of an object file.

use crate::{BpfError, Kernel, Mapped, Pins, Shared, Table, kernel};
use aya::maps::{Array, DevMap, LpmTrie, Map, MapData, MapError, PerCpuArray, ProgramArray, RingBuf, XskMap};
use aya::programs::{ProgramError, ProgramFd, SchedClassifier, TestRun, TestRunAttrs, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader, Pod};
use std::io;
use std::os::fd::AsFd;

/// An object that is part of this program, and what is to be known of it.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Its bytes, at an address that [`crate::include_bytes_aligned`] has chosen.
    pub object: &'static [u8],
    /// The XDP program in it.
    pub program: &'static str,
    /// The oldest kernel that has what the program uses.
    pub minimum: Kernel,
    /// The layout of the maps below; a new number for every change that an older program would misread.
    pub layout: u32,
    /// Maps that go from one process to the next.
    pub shared: &'static [Shared],
}

/// What a program says of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// As XDP numbers it: 1 drops, 2 passes, 3 sends back, 4 redirects.
    pub action: u32,
    /// Nanoseconds for one run, on average.
    pub ns: u64,
}

impl Verdict {
    /// `XDP_DROP`.
    pub const DROP: u32 = 1;
    /// `XDP_PASS`.
    pub const PASS: u32 = 2;
    /// `XDP_TX`.
    pub const TX: u32 = 3;
}

/// A program and its maps, in the kernel.
#[derive(Debug)]
pub struct Object {
    ebpf: Ebpf,
    program: &'static str,
}

impl Object {
    /// Loads an object, with other numbers of entries for maps than it says itself. With pins, maps that are pinned are
    /// taken as they are, and the others are pinned.
    ///
    /// # Errors
    /// Rights or memory are missing; the kernel is too old for the program; what is pinned does not fit it.
    pub fn load(source: &Source, entries: &[(&str, u32)], pins: Option<&Pins>) -> Result<Self, BpfError> {
        let mut loader = EbpfLoader::new();
        for (name, entries) in entries {
            loader.map_max_entries(name, *entries);
        }
        if let Some(pins) = pins {
            pins.check(source.shared, entries)?;
            for map in source.shared {
                loader.map_pin_path(map.name, pins.maps().join(map.name));
            }
        }
        let ebpf = loader.load(source.object).map_err(|error| {
            let maps = matches!(error, EbpfError::MapError(MapError::CreateError { .. }));
            let action =
                if maps { "cannot make the XDP program's maps" } else { "cannot read the XDP program" };
            refused(source, action, to_io(error))
        })?;
        let mut object = Object { ebpf, program: source.program };
        let action = "the kernel refuses the XDP program";
        let xdp = object.xdp().map_err(|error| refused(source, action, error))?;
        xdp.load().map_err(|error| match error {
            ProgramError::LoadError { io_error, verifier_log } => {
                refused(source, action, with_reason(io_error, &verifier_log.to_string()))
            }
            other => refused(source, action, to_io(other)),
        })?;
        Ok(object)
    }

    fn xdp(&mut self) -> io::Result<&mut Xdp> {
        let program = self.ebpf.program_mut(self.program);
        program.ok_or_else(|| io::Error::other("no such program in the object"))?.try_into().map_err(to_io)
    }

    fn loaded(&self) -> io::Result<&Xdp> {
        let program = self.ebpf.program(self.program);
        program.ok_or_else(|| io::Error::other("no such program in the object"))?.try_into().map_err(to_io)
    }

    /// The program's descriptor.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn program_fd(&self) -> Result<ProgramFd, BpfError> {
        let fd = self.loaded().and_then(|xdp| xdp.fd().map_err(to_io)?.try_clone());
        fd.map_err(BpfError::system("cannot use the XDP program"))
    }

    /// The program's number in the kernel.
    pub(crate) fn program_id(&self) -> Result<u32, BpfError> {
        let info = self.loaded().and_then(|xdp| xdp.info().map_err(to_io));
        info.map(|info| info.id()).map_err(BpfError::system("cannot use the XDP program"))
    }

    /// Loads a second program of the object: one on what leaves an interface (TC), with the same maps.
    ///
    /// # Errors
    /// As [`Object::load`].
    pub fn load_egress(&mut self, source: &Source, name: &str) -> Result<(), BpfError> {
        let action = "the kernel refuses the TC program";
        let program = self.egress(name).map_err(|error| refused(source, action, error))?;
        program.load().map_err(|error| match error {
            ProgramError::LoadError { io_error, verifier_log } => {
                refused(source, action, with_reason(io_error, &verifier_log.to_string()))
            }
            other => refused(source, action, to_io(other)),
        })
    }

    pub(crate) fn egress(&mut self, name: &str) -> io::Result<&mut SchedClassifier> {
        let program = self.ebpf.program_mut(name);
        program.ok_or_else(|| io::Error::other("no such program in the object"))?.try_into().map_err(to_io)
    }

    /// A TC program's descriptor.
    pub(crate) fn egress_fd(&mut self, name: &str) -> Result<ProgramFd, BpfError> {
        let fd = self.egress(name).and_then(|program| program.fd().map_err(to_io)?.try_clone());
        fd.map_err(BpfError::system("cannot use the TC program"))
    }

    /// How many steps the kernel's verifier has taken for a program that is loaded, of the million that it may take. `None`: Linux before 5.16 does not say it.
    ///
    /// # Errors
    /// There is no such program, or it is not loaded.
    pub fn verified_steps(&self, name: &str) -> io::Result<Option<u32>> {
        let program = self.ebpf.program(name);
        let program = program.ok_or_else(|| io::Error::other("no such program in the object"))?;
        program.info().map(|info| info.verified_instruction_count()).map_err(to_io)
    }

    /// An array map (`BPF_F_MMAPABLE`) in memory: `words` of 64 bits.
    ///
    /// # Errors
    /// There is no such map, or it is shorter, or cannot be mapped.
    pub fn mapped(&self, name: &str, words: usize) -> Result<Mapped, BpfError> {
        let map = match self.map_ref(name) {
            Ok(Map::Array(data)) => data,
            Ok(_) => return Err(BpfError::Refused(format!("the map {name:?} is no array"))),
            Err(error) => {
                return Err(BpfError::System {
                    action: "cannot map the BPF program's memory",
                    source: error,
                });
            }
        };
        Mapped::new(map.fd().as_fd(), words)
    }

    /// What the program tells, in order. Taken out of the object: once.
    ///
    /// # Errors
    /// There is no such map, or it is of another type.
    pub fn events(&mut self, name: &str) -> io::Result<RingBuf<MapData>> {
        let map = self.ebpf.take_map(name);
        map.ok_or_else(|| io::Error::other(format!("no map {name:?} in the object")))?
            .try_into()
            .map_err(to_io)
    }

    /// A map of values by prefix.
    ///
    /// # Errors
    /// There is no such map, or it is of another type or size.
    pub fn prefixes<K: Pod, V: Pod>(&mut self, name: &str) -> io::Result<LpmTrie<&mut MapData, K, V>> {
        LpmTrie::try_from(self.map(name)?).map_err(to_io)
    }

    fn map(&mut self, name: &str) -> io::Result<&mut Map> {
        self.ebpf.map_mut(name).ok_or_else(|| io::Error::other(format!("no map {name:?} in the object")))
    }

    fn map_ref(&self, name: &str) -> io::Result<&Map> {
        self.ebpf.map(name).ok_or_else(|| io::Error::other(format!("no map {name:?} in the object")))
    }

    /// A map of values by index.
    ///
    /// # Errors
    /// There is no such map, or it is of another type or size.
    pub fn array<V: Pod>(&mut self, name: &str) -> io::Result<Array<&mut MapData, V>> {
        Array::try_from(self.map(name)?).map_err(to_io)
    }

    /// A map of values by key.
    ///
    /// # Errors
    /// There is no such map, or it is of another type or size.
    pub fn table<K: Pod, V: Pod>(&mut self, name: &str) -> io::Result<Table<&mut MapData, K, V>> {
        Table::new(self.map(name)?)
    }

    /// A map of AF_XDP sockets by queue.
    ///
    /// # Errors
    /// There is no such map, or it is of another type.
    pub fn sockets(&mut self, name: &str) -> io::Result<XskMap<&mut MapData>> {
        XskMap::try_from(self.map(name)?).map_err(to_io)
    }

    /// A map of programs to go on with.
    ///
    /// # Errors
    /// There is no such map, or it is of another type.
    pub fn programs(&mut self, name: &str) -> io::Result<ProgramArray<&mut MapData>> {
        ProgramArray::try_from(self.map(name)?).map_err(to_io)
    }

    /// A map of devices that programs send by, by index.
    ///
    /// # Errors
    /// There is no such map, or it is of another type.
    pub fn devices(&mut self, name: &str) -> io::Result<DevMap<&mut MapData>> {
        DevMap::try_from(self.map(name)?).map_err(to_io)
    }

    /// The number of the device at `index` of such a map. `None`: there is none, for the map forgets a device that goes.
    ///
    /// # Errors
    /// There is no such map, it is of another type, or `index` is beyond it.
    pub fn device(&self, name: &str, index: u32) -> io::Result<Option<u32>> {
        let devices = DevMap::try_from(self.map_ref(name)?).map_err(to_io)?;
        match devices.get(index, 0) {
            Ok(device) => Ok(Some(device.if_index)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(to_io(error)),
        }
    }

    /// Numbers that lie together and that every processor counts for itself, each summed.
    ///
    /// # Errors
    /// There is no such map, it is of another type or size, or `index` is beyond it.
    pub fn sums<const N: usize>(&self, name: &str, index: u32) -> io::Result<[u64; N]> {
        let counts = PerCpuArray::<_, [u64; N]>::try_from(self.map_ref(name)?).map_err(to_io)?;
        let mut sums = [0_u64; N];
        for counts in counts.get(&index, 0).map_err(to_io)?.iter() {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.wrapping_add(*count));
        }
        Ok(sums)
    }

    /// A number that every processor counts for itself, summed.
    ///
    /// # Errors
    /// There is no such map, it is of another type, or `index` is beyond it.
    pub fn sum(&self, name: &str, index: u32) -> io::Result<u64> {
        self.sums(name, index).map(|[sum]| sum)
    }

    /// Runs the program on a frame, without an interface, `repeat` times.
    ///
    /// # Errors
    /// The kernel refuses: a frame shorter than 14 bytes, or longer than a page has room for.
    pub fn run(&self, frame: &[u8], repeat: u32) -> io::Result<Verdict> {
        let options = TestRunOptions { data_in: Some(frame), repeat, ..TestRunOptions::new() };
        let result = self.loaded()?.test_run(options).map_err(to_io)?;
        Ok(Verdict { action: result.return_value, ns: result.duration.as_nanos() as u64 })
    }

    /// Runs the program once on a frame, as if the device `interface` had received it, and gives what it has made of that.
    ///
    /// # Errors
    /// As [`Object::run`]; there is no such device.
    pub fn run_once(&self, frame: &[u8], interface: u32) -> io::Result<(Verdict, Vec<u8>)> {
        let (mut context, mut made) = ([0; 24], vec![0; 4096]);
        context[4..8].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        context[12..16].copy_from_slice(&interface.to_ne_bytes());
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut made),
            ctx_in: Some(&context),
            repeat: 1,
            ..TestRunOptions::new()
        };
        let result = self.loaded()?.test_run(options).map_err(to_io)?;
        let length = result.data_size_out as usize;
        made.truncate(length);
        Ok((Verdict { action: result.return_value, ns: result.duration.as_nanos() as u64 }, made))
    }

    /// Runs a TC program, which [`Object::load_egress`] has loaded, once on a frame: what it says of that, as TC numbers it.
    ///
    /// # Errors
    /// The kernel refuses: a frame shorter than 14 bytes, or longer than a page has room for.
    pub fn run_egress(&self, name: &str, frame: &[u8]) -> io::Result<u32> {
        let program = self.ebpf.program(name);
        let program = program.ok_or_else(|| io::Error::other("no such program in the object"))?;
        let program: &SchedClassifier = program.try_into().map_err(to_io)?;
        let options = TestRunOptions { data_in: Some(frame), repeat: 1, ..TestRunOptions::new() };
        Ok(program.test_run(options).map_err(to_io)?.return_value)
    }

    /// Runs the program on copies of a frame, as if the device `interface` had received them, and has the kernel do what it says:
    /// `XDP_TX` sends them out of that device. For loads; Linux 5.18.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn flood(&self, frame: &[u8], interface: u32, count: u32) -> io::Result<()> {
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let mut context = [0; 24];
        context[4..8].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        context[12..16].copy_from_slice(&interface.to_ne_bytes());
        let options = TestRunOptions {
            data_in: Some(frame),
            ctx_in: Some(&context),
            repeat: count,
            attrs: TestRunAttrs::new().xdp_live_frames(64),
            ..TestRunOptions::new()
        };
        self.loaded()?.test_run(options).map_err(to_io).map(drop)
    }
}

/// What to say when the kernel refuses: what is missing, where that can be known.
fn refused(source: &Source, action: &'static str, error: io::Error) -> BpfError {
    if error.raw_os_error() == Some(libc::EPERM) {
        return BpfError::Refused(kernel::lacking(action));
    }
    if let Some(old) = source.minimum.missing("the XDP program") {
        return BpfError::Refused(format!("{action}: {old}"));
    }
    BpfError::System { action, source: error }
}

/// What the kernel's verifier said last, beside the error that it led to.
fn with_reason(error: io::Error, log: &str) -> io::Error {
    let sums = ["processed ", "stack depth ", "verification time "];
    let is_sum = |line: &&str| line.trim().is_empty() || sums.iter().any(|sum| line.starts_with(sum));
    let reason = log.lines().rev().find(|line| !is_sum(line));
    match reason {
        Some(reason) if error.raw_os_error() != Some(libc::EPERM) => {
            io::Error::new(error.kind(), format!("{error}: {}", reason.trim()))
        }
        _ => error,
    }
}

/// The system's own error, where there is one at the bottom.
pub fn to_io<E: std::error::Error + Send + Sync + 'static>(error: E) -> io::Error {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = at {
        if let Some(code) = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        at = cause.source();
    }
    io::Error::other(error)
}
