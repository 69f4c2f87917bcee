//! One record of each kind, and a strategy that makes all of them: the one table of samples for the decoder's tests.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ids::{ContainerId, PodUid, SandboxId};

/// At least one record of each kind.
pub(crate) fn samples() -> Vec<Record> {
    let events = [
        Event::Bytes(Bytes {
            conn: ConnId(7),
            offset: 1 << 33,
            other_at: MonotonicNs(5),
            fd: 12,
            direction: Direction::Out,
            len: 9,
            data: b"PRI * H".to_vec(),
        }),
        Event::Socket(Socket {
            op: SocketOp::Connect,
            conn: ConnId(8),
            fd: 13,
            other_fd: None,
            ret: -111,
            peer: Some(Tgid(44)),
            path: "@/containerd-shim/abc.sock".into(),
        }),
        Event::Socket(Socket {
            op: SocketOp::Accept,
            conn: ConnId(9),
            fd: 14,
            other_fd: Some(3),
            ret: 14,
            peer: None,
            path: "/run/containerd/containerd.sock".into(),
        }),
        Event::NewTask(NewTask { child: Tgid(101), parent: Tgid(100), clone_flags: 0x11, cgroup: CgroupId(99) }),
        Event::Exec(Exec {
            parent: Tgid(100),
            cgroup: CgroupId(99),
            namespaces: Namespaces { mnt: 1, net: 2, ipc: 3, uts: 4, pid: 5, user: 6 },
            container: false,
            incomplete: true,
            comm: "bridge".into(),
            oom_score_adj: -998,
            filename: "/opt/cni/bin/bridge".into(),
            argv: vec!["bridge".into(), String::new()],
            cni: vec![("CNI_COMMAND".into(), "ADD".into()), ("CNI_ARGS".into(), "A=b;C=d".into())],
        }),
        Event::Exit(Exit { status: Some(3), signal: None, comm: "runc".into() }),
        Event::Exit(Exit { status: None, signal: Some(9), comm: "fifteen-bytes-x".into() }),
        Event::Syscall(Syscall {
            sys: Sys::Mount,
            enter: MonotonicNs(999),
            ret: -2,
            args: [1, 2, 3, 4, u64::MAX],
            namespaces: Namespaces::default(),
            strings: ["proc".into(), "/proc".into(), String::new()],
        }),
        Event::Cgroup(Cgroup {
            op: CgroupOp::Attach,
            hierarchy: 0,
            id: CgroupId(5),
            task: Some(Tgid(77)),
            threadgroup: true,
            path: "/kubepods/podx".into(),
        }),
        Event::CgroupWrite(CgroupWrite {
            exit: MonotonicNs(1001),
            ret: 5,
            cgroup: CgroupId(5),
            dir: "podx".into(),
            file: "memory.max".into(),
            value: "134217728".into(),
        }),
        Event::Oom { victim: Tgid(77), rss_kib: 40_960 },
        Event::Signal { target: Tgid(77), signal: 15, code: -6, result: 0, comm: "runc".into() },
        Event::Listen(Listen { cgroup: CgroupId(4711), netns: 4_026_532_201, port: 8080 }),
        connect("10.88.0.7", true),
        connect("fd00::7", false),
        Event::Clock { realtime: 1_700_000_000_123_456_789 },
        Event::Tick,
        Event::Lost { counter: abi::counter::BYTES_LOST, count: 3 },
        Event::Node(vec![("kernel".into(), "6.1.0".into()), ("runtime".into(), String::new())]),
        Event::Process(Process {
            namespaces: Namespaces { net: 4_026_531_840, ..Namespaces::default() },
            parent: Tgid(1),
            role: Role::Runtime,
            exe: "/usr/bin/containerd".into(),
            argv: vec!["containerd".into(), "--log-level".into(), "debug".into()],
            cgroup: "/system.slice/containerd.service".into(),
            helper: None,
        }),
        Event::Process(Process {
            namespaces: Namespaces { net: 4_026_531_840, ..Namespaces::default() },
            parent: Tgid(1),
            role: Role::Other,
            exe: "/opt/cni/bin/bridge".into(),
            argv: vec!["/opt/cni/bin/bridge".into()],
            cgroup: "/system.slice/containerd.service".into(),
            helper: Some(Helper {
                started: MonotonicNs(4_711_230_000_000),
                cni: vec![("CNI_COMMAND".into(), "ADD".into()), ("CNI_ARGS".into(), "K8S_POD_NAME=a;B=c".into())],
            }),
        }),
        Event::Mark(abi::mark::ATTACHED),
        listed(Listing::Sandbox(ListedSandbox {
            id: SandboxId("5b".repeat(32)),
            name: "web".into(),
            namespace: "shop".into(),
            uid: PodUid("9b0b4c27-2ff2-4e5c-8e47-1d8a2f5f0a11".into()),
            attempt: Some(0),
            ready: Some(true),
            handler: "runc".into(),
            created: Some(1_700_000_000_000_000_001),
            pid: Some(Tgid(55)),
            cgroup: "/kubepods/podx/5b".into(),
            ip: "10.88.0.7".into(),
        })),
        listed(Listing::Container(ListedContainer {
            id: ContainerId("c0".repeat(32)),
            sandbox: SandboxId("5b".repeat(32)),
            name: "app".into(),
            attempt: Some(3),
            image: "busybox:1".into(),
            state: Some(ContainerState::Exited),
            created: None,
            pid: None,
            cgroup: String::new(),
            exit_code: Some(-1),
        })),
        listed(Listing::End { trouble: Some("no answer to CRI ListContainers in 3 s".into()) }),
        listed(Listing::End { trouble: None }),
        Event::Waiting(Waiting {
            started: MonotonicNs(4_711_230_000_000),
            state: Some('S'),
            syscall: Some(230),
            comm: "sleep".into(),
            syscall_name: "clock_nanosleep".into(),
            wchan: "hrtimer_nanosleep".into(),
            stack: vec!["hrtimer_nanosleep+0xb5/0x130".into(), "do_syscall_64+0x71/0x280".into()],
        }),
        Event::Waiting(Waiting { comm: "runc".into(), ..Waiting::default() }),
        Event::Unknown(4711),
    ];
    events.into_iter().map(|event| Record { at: MonotonicNs(1000), tgid: Tgid(100), tid: Tid(102), event }).collect()
}

fn listed(what: Listing) -> Event {
    Event::Listed(Listed { asked: MonotonicNs(980), source: ListSource::Cri, what })
}

fn connect(address: &str, accepted: bool) -> Event {
    let address = address.parse().unwrap();
    Event::Connect(Connect { start: MonotonicNs(990), address, port: 8080, accepted })
}

/// Any record that the decoder can give.
pub(crate) fn any_record() -> impl Strategy<Value = Record> {
    (any::<u64>(), any::<u32>(), any::<u32>(), any_event()).prop_map(|(at, tgid, tid, event)| Record {
        at: MonotonicNs(at),
        tgid: Tgid(tgid),
        tid: Tid(tid),
        event,
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any_bytes(),
        any_socket(),
        any_exec(),
        any_syscall(),
        any_cgroup(),
        any_user_space(),
        any_listed(),
        any_waiting()
    ]
}

/// Without zero bytes: strings that the ABI ends with one.
fn word() -> impl Strategy<Value = String> {
    "[^\0]{0,40}"
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    vec(("[A-Z_]{0,12}", word()), 0..4)
}

fn namespaces() -> impl Strategy<Value = Namespaces> {
    any::<[u32; 6]>().prop_map(|[mnt, net, ipc, uts, pid, user]| Namespaces { mnt, net, ipc, uts, pid, user })
}

fn any_bytes() -> impl Strategy<Value = Event> {
    (any::<[u64; 3]>(), any::<i32>(), any::<bool>(), vec(any::<u8>(), 0..300), 0u32..9).prop_map(
        |([conn, offset, other], fd, out, data, missing)| {
            Event::Bytes(Bytes {
                conn: ConnId(conn),
                offset,
                other_at: MonotonicNs(other),
                fd,
                direction: if out { Direction::Out } else { Direction::In },
                len: u32::try_from(data.len()).unwrap() + missing,
                data,
            })
        },
    )
}

fn any_socket() -> impl Strategy<Value = Event> {
    let op = prop_oneof![Just(SocketOp::Close), Just(SocketOp::Dup), Just(SocketOp::Bind), Just(SocketOp::Found)];
    (op, any::<u64>(), any::<[i32; 2]>(), proptest::option::of(0..i32::MAX), 0u32..3, word()).prop_map(
        |(op, conn, [fd, ret], other_fd, peer, path)| {
            let peer = Some(Tgid(peer)).filter(|t| t.0 != 0);
            Event::Socket(Socket { op, conn: ConnId(conn), fd, other_fd, ret, peer, path })
        },
    )
}

fn any_exec() -> impl Strategy<Value = Event> {
    let text = ("[^\0]{0,3}", word(), vec(word(), 0..5), pairs());
    (any::<u32>(), any::<u64>(), namespaces(), any::<[bool; 2]>(), any::<i32>(), text).prop_map(
        |(parent, cgroup, namespaces, [container, incomplete], oom_score_adj, (comm, filename, argv, cni))| {
            Event::Exec(Exec {
                parent: Tgid(parent),
                cgroup: CgroupId(cgroup),
                namespaces,
                container,
                incomplete,
                comm,
                oom_score_adj,
                filename,
                argv,
                cni,
            })
        },
    )
}

fn any_syscall() -> impl Strategy<Value = Event> {
    (0u32..30, any::<u64>(), any::<i64>(), any::<[u64; 5]>(), namespaces(), [".{0,9}", ".{0,9}", ".{0,9}"]).prop_map(
        |(sys, enter, ret, args, namespaces, strings)| {
            let sys = Sys::from_code(sys);
            Event::Syscall(Syscall { sys, enter: MonotonicNs(enter), ret, args, namespaces, strings })
        },
    )
}

fn any_cgroup() -> impl Strategy<Value = Event> {
    let attach = prop_oneof![Just(CgroupOp::Mkdir), Just(CgroupOp::Rmdir), Just(CgroupOp::Attach)];
    let made = (attach, any::<u32>(), any::<u64>(), any::<u32>(), any::<bool>(), ".{0,60}").prop_map(
        |(op, hierarchy, id, task, threadgroup, path)| {
            let task = (op == CgroupOp::Attach).then_some(Tgid(task));
            Event::Cgroup(Cgroup { op, hierarchy, id: CgroupId(id), task, threadgroup, path })
        },
    );
    let written = (any::<[u64; 2]>(), any::<i64>(), [".{0,9}", ".{0,9}", ".{0,60}"]).prop_map(
        |([exit, cgroup], ret, [dir, file, value])| {
            Event::CgroupWrite(CgroupWrite { exit: MonotonicNs(exit), ret, cgroup: CgroupId(cgroup), dir, file, value })
        },
    );
    prop_oneof![made, written]
}

fn any_user_space() -> impl Strategy<Value = Event> {
    let exit = (any::<u8>(), 0u8..128, "[^\0]{0,3}").prop_map(|(status, signal, comm)| {
        let signal = Some(signal).filter(|s| *s != 0);
        Event::Exit(Exit { status: signal.is_none().then_some(status), signal, comm })
    });
    let process = (namespaces(), any::<u32>(), ".{0,20}", vec(word(), 0..4), ".{0,20}").prop_map(
        |(namespaces, parent, exe, argv, cgroup)| {
            let helper = None;
            Event::Process(Process { namespaces, parent: Tgid(parent), role: Role::Shim, exe, argv, cgroup, helper })
        },
    );
    prop_oneof![
        exit,
        process,
        pairs().prop_map(Event::Node),
        any::<u64>().prop_map(|realtime| Event::Clock { realtime }),
        any::<u32>().prop_map(Event::Mark),
        (100u32..).prop_map(Event::Unknown),
    ]
}

fn any_waiting() -> impl Strategy<Value = Event> {
    use proptest::option::of;
    let numbers = (any::<u64>(), of(any::<char>().prop_filter("a letter", |it| *it != '\0')), of(0..u32::MAX));
    (numbers, [".{0,9}", ".{0,9}", ".{0,9}"], vec("[^\n]{1,9}", 0..4)).prop_map(
        |((started, state, syscall), [comm, syscall_name, wchan], stack)| {
            let started = MonotonicNs(started);
            Event::Waiting(Waiting { started, state, syscall, comm, syscall_name, wchan, stack })
        },
    )
}

fn any_listed() -> impl Strategy<Value = Event> {
    use proptest::option::of;
    let state =
        prop_oneof![Just(ContainerState::Created), Just(ContainerState::Running), Just(ContainerState::Exited),];
    let texts = [".{0,9}", ".{0,9}", ".{0,9}", ".{0,9}", ".{0,9}", ".{0,9}", ".{0,9}"];
    let sandbox = (texts, of(any::<u32>()), of(any::<bool>()), of(1u64..), of(1u32..)).prop_map(
        |([id, name, namespace, uid, handler, cgroup, ip], attempt, ready, created, pid)| {
            let (id, uid, pid) = (SandboxId(id), PodUid(uid), pid.map(Tgid));
            Listing::Sandbox(ListedSandbox {
                id,
                name,
                namespace,
                uid,
                attempt,
                ready,
                handler,
                created,
                pid,
                cgroup,
                ip,
            })
        },
    );
    let texts = [".{0,9}", ".{0,9}", ".{0,9}", ".{0,9}", ".{0,9}"];
    let numbers = (of(any::<u32>()), of(state), of(1u64..), of(1u32..), of(any::<i32>()));
    let container =
        (texts, numbers).prop_map(|([id, sandbox, name, image, cgroup], (attempt, state, created, pid, exit_code))| {
            let (id, sandbox, pid) = (ContainerId(id), SandboxId(sandbox), pid.map(Tgid));
            Listing::Container(ListedContainer {
                id,
                sandbox,
                name,
                attempt,
                image,
                state,
                created,
                pid,
                cgroup,
                exit_code,
            })
        });
    let end = of(".{1,40}").prop_map(|trouble| Listing::End { trouble });
    (any::<u64>(), any::<bool>(), prop_oneof![sandbox, container, end]).prop_map(|(asked, cri, what)| {
        let source = if cri { ListSource::Cri } else { ListSource::Proc };
        Event::Listed(Listed { asked: MonotonicNs(asked), source, what })
    })
}
