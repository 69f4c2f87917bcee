//! Loads the BPF object, attaches every hook that this kernel allows, and says why the others are refused.

use std::collections::HashMap;
use std::io;

use aya::maps::{Array, HashMap as BpfHash, MapData, MapError};
use aya::programs::{Program, ProgramError, RawTracePoint, TracePoint};
use aya::{Ebpf, EbpfError, EbpfLoader, Endianness, Pod};
use tracer_ebpf::shared::{self, offset};

use super::btf::Btf;
use super::detach::{self, Held};
use super::hooks::{self, Backend, Choice, Hook, Plan, Point, Status};
use super::log::Lines;
use super::tracefs::Tracefs;
use super::{ProbeError, privileges, specs};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracer-ebpf"));

const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// A map value that the programs share; the wrapper says that it is plain data.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Plain<T>(pub(crate) T);

macro_rules! plain {
    ($($name:ident)*) => {$(
        // SAFETY: repr(C), integers alone, no padding (its size is asserted beside its definition).
        unsafe impl Pod for Plain<shared::$name> {}
    )*};
}
plain! { Myself Found Tracked Fd Conn Path Spec }

/// The programs in the kernel. Dropping it detaches everything, see [`detach`].
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) ebpf: Ebpf,
    pub(crate) hooks: Vec<Hook>,
    /// By which the payload of sockets comes.
    pub(crate) payload: Backend,
    /// Why it does not come by trampolines, where it was left to the kernel.
    pub(crate) fallback: Option<String>,
    /// Marks podlapse's questions, see [`shared::map::FINDER_KEY`].
    pub(crate) key: u32,
    /// Last id given to a socket that was open already.
    pub(crate) last_id: u64,
    /// What debug programs write.
    pub(crate) lines: Lines,
    /// The last field, so dropped after the programs.
    held: Option<Held>,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.held = detach::in_background();
    }
}

/// Attaches every hook without a runtime, and detaches again: what this kernel and these privileges allow; and why the
/// payload of sockets does not come by trampolines, if so and not chosen.
///
/// # Errors
/// What keeps every hook from working.
pub fn probe_hooks(choice: Choice) -> Result<(Vec<Hook>, Option<String>), ProbeError> {
    on_thread(|| load(choice)).map(|loaded| (loaded.hooks.clone(), loaded.fallback.clone()))
}

/// [`load`], with required hooks attached.
///
/// # Errors
/// Also [`ProbeError::Required`].
pub(crate) fn load_for_tracing(choice: Choice) -> Result<Loaded, ProbeError> {
    let loaded = on_thread(|| load(choice))?;
    for hook in &loaded.hooks {
        if let (true, Status::Refused(reason)) = (hook.required, &hook.status) {
            return Err(ProbeError::Required { name: hook.name.clone(), reason: reason.clone() });
        }
    }
    Ok(loaded)
}

/// tracefs may have to be mounted, for one thread alone: the thread's end takes the mount away.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("attach".to_owned()).spawn_scoped(scope, work);
        match thread.expect("a thread can be started").join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn load(choice: Choice) -> Result<Loaded, ProbeError> {
    if OBJECT.is_empty() {
        return Err(ProbeError::NoPrograms);
    }
    privileges::check()?;
    privileges::lift_memlock();
    privileges::lift_files();
    let data = std::fs::read(BTF_PATH).map_err(|source| ProbeError::NoBtf { path: BTF_PATH.into(), source })?;
    let types = aya::Btf::parse(&data, Endianness::default());
    let btf = Btf::parse(data).map_err(|what| ProbeError::BadBtf { path: BTF_PATH.into(), what })?;
    let tracefs = Tracefs::open()?;
    let offsets = offsets(&btf, &tracefs)?;
    let key = key();
    let mut ebpf = EbpfLoader::new()
        .btf(None)
        .override_global(shared::map::OFFSETS, &offsets, true)
        .override_global(shared::map::FINDER_KEY, &key, true)
        .load(OBJECT)
        .map_err(object_error)?;
    let lines = Lines::of(&mut ebpf);
    let mut table: Array<_, Plain<shared::Spec>> = array(&mut ebpf, shared::map::SPECS)?;
    for it in specs::all() {
        let index = u32::try_from(it.nr).unwrap_or(u32::MAX);
        table.set(index, Plain(it.spec), 0).map_err(|source| ProbeError::Map { name: shared::map::SPECS, source })?;
    }
    let types = types.map_err(|error| format!("aya does not understand this kernel's BTF: {error}"));
    let loaded = HashMap::new();
    let mut attacher = Attacher { ebpf: &mut ebpf, btf: &btf, types, tracefs: &tracefs, offsets: &offsets, loaded };
    let (payload, mut hooks, fallback) = attacher.payload(choice)?;
    hooks.extend(hooks::plans(payload).into_iter().map(|plan| attacher.hook(plan)));
    Ok(Loaded { ebpf, hooks, payload, fallback, key, last_id: 0, lines, held: None })
}

/// The maps, and no program attached; without the right to make maps an error.
#[cfg(test)]
pub(crate) fn maps_alone() -> Result<Loaded, ProbeError> {
    privileges::check()?;
    privileges::lift_memlock();
    let mut ebpf = EbpfLoader::new().btf(None).load(OBJECT).map_err(object_error)?;
    let lines = Lines::of(&mut ebpf);
    let (hooks, payload) = (Vec::new(), Backend::Tracepoint);
    Ok(Loaded { ebpf, hooks, payload, fallback: None, key: 0, last_id: 0, lines, held: None })
}

/// An array map of the object.
///
/// # Errors
/// [`ProbeError::Map`].
pub(crate) fn array<'a, V: Pod>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<Array<&'a mut MapData, V>, ProbeError> {
    let map = ebpf.map_mut(name).ok_or_else(|| ProbeError::Object(format!("it has no map {name}")))?;
    Array::try_from(map).map_err(|source| ProbeError::Map { name, source })
}

/// A hash map of the object.
///
/// # Errors
/// [`ProbeError::Map`].
pub(crate) fn hash<'a, K: Pod, V: Pod>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<BpfHash<&'a mut MapData, K, V>, ProbeError> {
    let map = ebpf.map_mut(name).ok_or_else(|| ProbeError::Object(format!("it has no map {name}")))?;
    BpfHash::try_from(map).map_err(|source| ProbeError::Map { name, source })
}

fn offsets(btf: &Btf, tracefs: &Tracefs) -> Result<[u32; offset::COUNT], ProbeError> {
    let mut offsets = [offset::MISSING; offset::COUNT];
    for (at, (of, path)) in offsets.iter_mut().zip(offset::MEMBERS) {
        *at = btf.offset(of, path).unwrap_or(offset::MISSING);
    }
    offsets[offset::SYS_NR] = tracefs.field("syscalls", "sys_enter_read", "__syscall_nr", 4)?;
    offsets[offset::SYS_ARGS] = tracefs.first_argument("syscalls", "sys_enter_read")?;
    offsets[offset::SYS_RET] = tracefs.field("syscalls", "sys_exit_read", "ret", 8)?;
    // (kernel: include/linux/uio.h)
    let member = |path| btf.offset("iov_iter", path);
    let set = |value: Option<u32>| value.unwrap_or(offset::MISSING);
    offsets[offset::ITER_TYPE] = set(member("iter_type").or_else(|| member("type")));
    offsets[offset::ITER_TYPE_MASK] = if member("iter_type").is_some() { 0xff } else { 0xfe };
    offsets[offset::ITER_IOV] = set(member("__iov").or_else(|| member("iov")));
    // Where there is none, no type is looked for there; but the verifier wants an offset that a pointer may have.
    offsets[offset::ITER_UBUF] = member("ubuf").unwrap_or(0);
    offsets[offset::TYPE_IOVEC] = set(btf.iter_type("ITER_IOVEC"));
    offsets[offset::TYPE_UBUF] = set(btf.iter_type("ITER_UBUF").filter(|_| member("ubuf").is_some()));
    if tracefs.has("oom", "mark_victim") {
        offsets[offset::VICTIM_PID] = tracefs.field("oom", "mark_victim", "pid", 4)?;
        // Older kernels tell the pid alone; what is told must be told whole.
        let sizes =
            [(offset::VICTIM_ANON, "anon_rss"), (offset::VICTIM_FILE, "file_rss"), (offset::VICTIM_SHMEM, "shmem_rss")];
        let known = sizes.map(|(at, name)| Some((at, tracefs.field("oom", "mark_victim", name, 8).ok()?)));
        if known.iter().all(Option::is_some) {
            known.into_iter().flatten().for_each(|(at, found)| offsets[at] = found);
        }
    }
    let tcp = ("sock", "inet_sock_set_state");
    if tracefs.has(tcp.0, tcp.1) {
        offsets[offset::TCP_SOCK] = tracefs.field(tcp.0, tcp.1, "skaddr", 8)?;
        offsets[offset::TCP_STATE] = tracefs.field(tcp.0, tcp.1, "newstate", 4)?;
        offsets[offset::TCP_PORT] = tracefs.field(tcp.0, tcp.1, "sport", 2)?;
        offsets[offset::TCP_OLD_STATE] = tracefs.field(tcp.0, tcp.1, "oldstate", 4)?;
        offsets[offset::TCP_TO_PORT] = tracefs.field(tcp.0, tcp.1, "dport", 2)?;
        offsets[offset::TCP_TO_ADDRESS] = tracefs.field(tcp.0, tcp.1, "daddr_v6", 16)?;
    }
    Ok(offsets)
}

/// Not 0, and not to be guessed: another process could otherwise make the finder answer out of turn.
fn key() -> u32 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    (random as u32) | 1
}

fn object_error(error: EbpfError) -> ProbeError {
    match error {
        EbpfError::MapError(MapError::CreateError { io_error, .. }) if is_files(&io_error) => ProbeError::Files,
        EbpfError::MapError(error) => ProbeError::Maps(chain(&error)),
        error => ProbeError::Object(chain(&error)),
    }
}

fn is_files(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// An error with its causes, on one line; of a verifier log the end.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [first, .., before, last] if lines.len() > 4 => format!("{first} … {before}; {last}"),
        lines => lines.join("; "),
    }
}

struct Attacher<'a> {
    ebpf: &'a mut Ebpf,
    btf: &'a Btf,
    /// The same once more, as aya wants it to find functions by.
    types: Result<aya::Btf, String>,
    tracefs: &'a Tracefs,
    offsets: &'a [u32; offset::COUNT],
    /// Programs that were loaded, or why not.
    loaded: HashMap<&'static str, Result<(), String>>,
}

impl Attacher<'_> {
    /// The payload of sockets by trampolines, where they are wanted and the kernel takes all of them; why, if not.
    fn payload(&mut self, choice: Choice) -> Result<(Backend, Vec<Hook>, Option<String>), ProbeError> {
        if choice == Choice::Only(Backend::Tracepoint) {
            return Ok((Backend::Tracepoint, Vec::new(), None));
        }
        let plans = hooks::trampolines();
        let checked = plans.iter().try_for_each(|plan| self.check_all(plan));
        let Err(reason) = checked.and_then(|()| plans.iter().try_for_each(|plan| self.attach_all(plan))) else {
            let attached = plans.into_iter().map(|plan| hook(plan, Status::Attached)).collect();
            return Ok((Backend::Trampoline, attached, None));
        };
        if choice != Choice::Auto {
            return Err(ProbeError::Trampolines(reason));
        }
        for (name, _) in plans.iter().flat_map(|plan| &plan.points) {
            // One that was not loaded cannot be unloaded, which is as well.
            let _ = match self.ebpf.program_mut(name) {
                Some(Program::FEntry(program)) => program.unload(),
                Some(Program::FExit(program)) => program.unload(),
                _ => Ok(()),
            };
        }
        Ok((Backend::Tracepoint, Vec::new(), Some(reason)))
    }

    fn hook(&mut self, plan: Plan) -> Hook {
        let status = match self.check_all(&plan).and_then(|()| self.attach_all(&plan)) {
            Ok(()) => Status::Attached,
            Err(reason) => Status::Refused(reason),
        };
        hook(plan, status)
    }

    fn check_all(&self, plan: &Plan) -> Result<(), String> {
        plan.points.iter().try_for_each(|(program, point)| self.check(program, point))
    }

    fn attach_all(&mut self, plan: &Plan) -> Result<(), String> {
        plan.points.iter().try_for_each(|(program, point)| self.attach(program, point))
    }

    /// What can be known before the kernel is asked.
    fn check(&self, program: &str, point: &Point) -> Result<(), String> {
        for member in hooks::members(program) {
            if self.offsets[member] == offset::MISSING {
                return Err(format!("this kernel's BTF has no {}", hooks::describe(member)));
            }
        }
        match point {
            Point::Trace(category, event) if !self.tracefs.has(category, event) => {
                Err(format!("no tracepoint {}", self.tracefs.event(category, event).display()))
            }
            Point::Trace(..) => Ok(()),
            Point::Raw(event, arguments) => {
                let Some(found) = self.btf.tracepoint(event) else {
                    return Err(format!("this kernel's BTF has no tracepoint {event}"));
                };
                let fits = found.len() >= arguments.len()
                    && found.iter().zip(*arguments).all(|(found, expected)| found == expected);
                fits.then_some(())
                    .ok_or_else(|| format!("tracepoint {event} has arguments {found:?}, not {arguments:?}"))
            }
            Point::Entry(function, arguments) | Point::Exit(function, arguments) => {
                let Some(found) = self.btf.function(function) else {
                    return Err(format!("this kernel's BTF has no function {function}"));
                };
                (found == *arguments)
                    .then_some(())
                    .ok_or_else(|| format!("function {function} has arguments {found:?}, not {arguments:?}"))
            }
        }
    }

    fn attach(&mut self, name: &'static str, point: &Point) -> Result<(), String> {
        let program = self.ebpf.program_mut(name).ok_or_else(|| format!("the BPF object has no program {name}"))?;
        let types = &self.types;
        self.loaded.entry(name).or_insert_with(|| load_program(program, point, types)).clone()?;
        let attached = match (point, program) {
            (Point::Trace(category, event), Program::TracePoint(program)) => program.attach(category, event).map(drop),
            (Point::Raw(event, _), Program::RawTracePoint(program)) => program.attach(event).map(drop),
            (Point::Entry(..), Program::FEntry(program)) => program.attach().map(drop),
            (Point::Exit(..), Program::FExit(program)) => program.attach().map(drop),
            _ => return Err(format!("program {name} is of another type")),
        };
        attached.map_err(|error| chain(&error))
    }
}

fn load_program(program: &mut Program, point: &Point, types: &Result<aya::Btf, String>) -> Result<(), String> {
    let loaded = match (program, point) {
        (Program::TracePoint(program), _) => TracePoint::load(program),
        (Program::RawTracePoint(program), _) => RawTracePoint::load(program),
        (Program::FEntry(program), Point::Entry(function, _)) => program.load(function, types.as_ref()?),
        (Program::FExit(program), Point::Exit(function, _)) => program.load(function, types.as_ref()?),
        _ => Err(ProgramError::UnexpectedProgramType),
    };
    loaded.map_err(|error| match error {
        ProgramError::LoadError { io_error, verifier_log } if verifier_log.to_string().trim().is_empty() => {
            format!("the kernel does not load such a program: {io_error}")
        }
        error => chain(&error),
    })
}

fn hook(plan: Plan, status: Status) -> Hook {
    let backend = plan.backend();
    let Plan { name, group, required, .. } = plan;
    Hook { name, group, required, backend, status }
}
