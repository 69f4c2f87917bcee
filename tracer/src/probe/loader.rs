//! Loads the BPF object, attaches every hook that this kernel allows, and says why the others are refused.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use aya::maps::{Array, HashMap as BpfHash, MapData, MapError};
use aya::programs::{Program, ProgramError, RawTracePoint, TracePoint};
use aya::{Ebpf, EbpfError, EbpfLoader, Pod};
use tracer_ebpf::shared::{self, offset};

use super::btf::Btf;
use super::detach::{self, Held};
use super::hooks::{self, Backend, Hook, Plan, Point, Status};
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

/// Attaches every hook without a runtime, and detaches again: what this kernel and these privileges allow.
///
/// # Errors
/// What keeps every hook from working.
pub fn probe_hooks() -> Result<Vec<Hook>, ProbeError> {
    on_thread(load).map(|loaded| loaded.hooks.clone())
}

/// [`load`], with required hooks attached.
///
/// # Errors
/// Also [`ProbeError::Required`].
pub(crate) fn load_for_tracing() -> Result<Loaded, ProbeError> {
    let loaded = on_thread(load)?;
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

fn load() -> Result<Loaded, ProbeError> {
    if OBJECT.is_empty() {
        return Err(ProbeError::NoPrograms);
    }
    privileges::check()?;
    privileges::lift_memlock();
    privileges::lift_files();
    let btf = read_btf(Path::new(BTF_PATH))?;
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
    let mut attacher =
        Attacher { ebpf: &mut ebpf, btf: &btf, tracefs: &tracefs, offsets: &offsets, loaded: HashMap::new() };
    let hooks = hooks::plans().into_iter().map(|plan| attacher.hook(plan)).collect();
    Ok(Loaded { ebpf, hooks, key, last_id: 0, lines, held: None })
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

fn read_btf(path: &Path) -> Result<Btf, ProbeError> {
    let data = std::fs::read(path).map_err(|source| ProbeError::NoBtf { path: path.to_owned(), source })?;
    Btf::parse(data).map_err(|what| ProbeError::BadBtf { path: path.to_owned(), what })
}

fn offsets(btf: &Btf, tracefs: &Tracefs) -> Result<[u32; offset::COUNT], ProbeError> {
    let mut offsets = [offset::MISSING; offset::COUNT];
    for (at, (of, path)) in offsets.iter_mut().zip(offset::MEMBERS) {
        *at = btf.offset(of, path).unwrap_or(offset::MISSING);
    }
    offsets[offset::SYS_NR] = tracefs.field("syscalls", "sys_enter_read", "__syscall_nr", 4)?;
    offsets[offset::SYS_ARGS] = tracefs.first_argument("syscalls", "sys_enter_read")?;
    offsets[offset::SYS_RET] = tracefs.field("syscalls", "sys_exit_read", "ret", 8)?;
    if tracefs.has("oom", "mark_victim") {
        offsets[offset::VICTIM_PID] = tracefs.field("oom", "mark_victim", "pid", 4)?;
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
    tracefs: &'a Tracefs,
    offsets: &'a [u32; offset::COUNT],
    /// Programs that were loaded, or why not.
    loaded: HashMap<&'static str, Result<(), String>>,
}

impl Attacher<'_> {
    fn hook(&mut self, plan: Plan) -> Hook {
        let result = plan.points.iter().try_for_each(|(program, point)| self.check(program, point));
        let result =
            result.and_then(|()| plan.points.iter().try_for_each(|(program, point)| self.attach(program, point)));
        let status = match result {
            Ok(()) => Status::Attached,
            Err(reason) => Status::Refused(reason),
        };
        let Plan { name, group, required, .. } = plan;
        Hook { name, group, required, backend: Backend::Tracepoint, status }
    }

    /// What can be known before the kernel is asked.
    fn check(&self, program: &str, point: &Point) -> Result<(), String> {
        for member in hooks::members(program) {
            if self.offsets[member] == offset::MISSING {
                let (of, path) = offset::MEMBERS[member];
                return Err(format!("this kernel's BTF has no member {of}.{path}"));
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
        }
    }

    fn attach(&mut self, name: &'static str, point: &Point) -> Result<(), String> {
        let program = self.ebpf.program_mut(name).ok_or_else(|| format!("the BPF object has no program {name}"))?;
        self.loaded.entry(name).or_insert_with(|| load_program(program).map_err(|error| chain(&error))).clone()?;
        let attached = match (point, program) {
            (Point::Trace(category, event), Program::TracePoint(program)) => program.attach(category, event).map(drop),
            (Point::Raw(event, _), Program::RawTracePoint(program)) => program.attach(event).map(drop),
            _ => return Err(format!("program {name} is of another type")),
        };
        attached.map_err(|error| chain(&error))
    }
}

fn load_program(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::TracePoint(program) => TracePoint::load(program),
        Program::RawTracePoint(program) => RawTracePoint::load(program),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}
