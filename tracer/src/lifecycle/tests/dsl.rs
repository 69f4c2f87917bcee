//! Streams of records and call events by hand: times in µs, in any order, sorted before they are fed.

use std::collections::{BTreeMap, BTreeSet};

use tracer_ebpf::Namespaces;

use crate::cri::{
    CallEvent, CallKey, CallStart, Ending, Field, Fields, HeaderSigns, MethodSource, Named, Protocol, Slot, Value,
};
use crate::engine::{Config, Update};
use crate::ids::{CgroupId, ConnId, MonotonicNs, Tgid, Tid};
use crate::lifecycle::Lifecycle;
use crate::record::{
    Cgroup, CgroupOp, CgroupWrite, Event, Exec, Exit, Helper, NewTask, Process, Record, Role, Sys, Syscall,
};
use crate::trace::Trace;

/// The runtime's pid.
pub(super) const RUNTIME: u32 = 100;

/// The node's network namespace.
pub(super) const HOST_NET: u32 = 9;

/// The id of every container's cgroup.
pub(super) const CGROUP: u64 = 7;

/// A record or an event of a call.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Record(Record),
    Call(CallEvent),
}

/// A stream in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub(super) items: Vec<(u64, Item)>,
    /// Added to every time.
    pub(super) offset: u64,
    streams: u32,
}

/// A container or sandbox id: 64 digits that begin with `name`'s hex letters.
pub(super) fn id(name: &str) -> String {
    format!("{:0<64}", name)
}

fn ns(us: u64) -> MonotonicNs {
    MonotonicNs(us * 1000)
}

/// Namespaces of a container, told apart by `number`.
pub(super) fn namespaces(number: u32) -> Namespaces {
    Namespaces { mnt: number, net: number + 1, ipc: number + 2, uts: number + 3, pid: number + 4, user: 1 }
}

impl Stream {
    /// A stream that begins with the runtime as found at attach.
    pub(super) fn new() -> Stream {
        let mut stream = Stream::default();
        stream.found(0, RUNTIME, Role::Runtime, "/usr/bin/containerd");
        let node = [("boot_id", "b00t"), ("kernel", "6.1"), ("probes.exec", "tracepoint")];
        let node = node.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        stream.record(0, 1, Event::Node(node));
        stream.record(0, 1, Event::Clock { realtime: 1_000_000_000_000 });
        stream
    }

    pub(super) fn record(&mut self, at: u64, pid: u32, event: Event) {
        self.thread_record(at, pid, pid, event);
    }

    fn thread_record(&mut self, at: u64, pid: u32, tid: u32, event: Event) {
        let at = at + self.offset;
        self.items.push((at, Item::Record(Record { at: ns(at), tgid: Tgid(pid), tid: Tid(tid), event })));
    }

    pub(super) fn found(&mut self, at: u64, pid: u32, role: Role, command: &str) {
        let argv = words(command);
        let process = Process {
            namespaces: Namespaces::default(),
            parent: Tgid(1),
            role,
            exe: argv[0].clone(),
            argv,
            cgroup: "/system.slice/containerd.service".into(),
            helper: None,
        };
        self.record(at, pid, Event::Process(process));
    }

    /// A container's first process as found at attach.
    pub(super) fn found_contained(&mut self, at: u64, parent: u32, pid: u32, command: &str, cgroup: &str) {
        self.found(at, pid, Role::Other, command);
        self.in_cgroup(cgroup);
        if let Some((_, Item::Record(Record { event: Event::Process(process), .. }))) = self.items.last_mut() {
            process.parent = Tgid(parent);
        }
    }

    /// A helper of the runtime as found at attach, where it ran since `started`.
    pub(super) fn found_helper(
        &mut self,
        (started, at): (u64, u64),
        parent: u32,
        pid: u32,
        command: &str,
        env: &[(String, String)],
    ) {
        let argv = words(command);
        let process = Process {
            namespaces: Namespaces { net: HOST_NET, ..Namespaces::default() },
            parent: Tgid(parent),
            role: Role::Other,
            exe: argv[0].clone(),
            argv,
            cgroup: "/system.slice/containerd.service".into(),
            helper: Some(Helper { started: ns(started + self.offset), cni: env.to_vec() }),
        };
        self.record(at, pid, Event::Process(process));
    }

    /// The process that was found last is in that cgroup.
    pub(super) fn in_cgroup(&mut self, path: &str) {
        if let Some((_, Item::Record(Record { event: Event::Process(process), .. }))) = self.items.last_mut() {
            process.cgroup = path.into();
        }
    }

    pub(super) fn fork(&mut self, at: u64, parent: u32, child: u32) {
        self.clone(at, parent, child, 0x11, 1);
    }

    pub(super) fn clone(&mut self, at: u64, parent: u32, child: u32, clone_flags: u64, cgroup: u64) {
        let task = NewTask { child: Tgid(child), parent: Tgid(parent), clone_flags, cgroup: CgroupId(cgroup) };
        self.record(at, parent, Event::NewTask(task));
    }

    pub(super) fn exec(&mut self, at: u64, parent: u32, pid: u32, command: &str) {
        self.record(at, pid, Event::Exec(exec_of(parent, command)));
    }

    pub(super) fn exec_in_container(&mut self, at: u64, parent: u32, pid: u32, command: &str, number: u32) {
        let namespaces = namespaces(number);
        let exec = Exec { container: true, namespaces, oom_score_adj: 1000, ..exec_of(parent, command) };
        self.record(at, pid, Event::Exec(exec));
    }

    pub(super) fn exit(&mut self, at: u64, pid: u32, status: u8) {
        self.record(at, pid, Event::Exit(Exit { status: Some(status), signal: None, comm: String::new() }));
    }

    /// A process ends by a signal.
    pub(super) fn killed(&mut self, at: u64, pid: u32, signal: u8) {
        self.record(at, pid, Event::Exit(Exit { status: None, signal: Some(signal), comm: "app".into() }));
    }

    /// A signal from a process to another one.
    pub(super) fn signal(&mut self, at: u64, (sender, comm): (u32, &str), target: u32, signal: u32) {
        self.signal_with(at, (sender, comm), target, signal, (0, 0));
    }

    /// The same with an `si_code` and a result.
    pub(super) fn signal_with(
        &mut self,
        at: u64,
        (sender, comm): (u32, &str),
        target: u32,
        signal: u32,
        (code, result): (i32, u32),
    ) {
        let event = Event::Signal { target: Tgid(target), signal, code, result, comm: comm.into() };
        self.record(at, sender, event);
    }

    /// The runtime's `kill`: a child of the shim sends the signal.
    pub(super) fn runc_kill(&mut self, at: u64, shim: u32, pid: u32, (id, target): (&str, u32), signal: u32) {
        let command = format!("runc --root /run/containerd/runc/k8s.io kill {id} {signal}");
        self.process((at - 1_000, at + 1_000), shim, pid, &command);
        self.signal(at, (pid, "runc"), target, signal);
    }

    /// The kernel chooses a victim.
    pub(super) fn oom(&mut self, at: u64, victim: u32, rss_kib: u32) {
        self.record(at, 1, Event::Oom { victim: Tgid(victim), rss_kib });
    }

    /// fork, exec and exit of a process.
    pub(super) fn process(&mut self, times: (u64, u64), parent: u32, pid: u32, command: &str) {
        self.fork(times.0 - 10, parent, pid);
        self.exec(times.0, parent, pid, command);
        self.exit(times.1, pid, 0);
    }

    /// A plugin's fork, exec and exit.
    pub(super) fn cni(&mut self, times: (u64, u64), parent: u32, pid: u32, plugin: &str, env: &[(String, String)]) {
        self.fork(times.0 - 10, parent, pid);
        let namespaces = Namespaces { net: HOST_NET, ..Namespaces::default() };
        let exec = Exec { cni: env.to_vec(), namespaces, ..exec_of(parent, &format!("/opt/cni/bin/{plugin}")) };
        self.record(times.0, pid, Event::Exec(exec));
        self.exit(times.1, pid, 0);
    }

    /// What a plugin's process runs: fork, exec with the plugin's variables, exit.
    pub(super) fn with_env(
        &mut self,
        times: (u64, u64),
        parent: u32,
        pid: u32,
        command: &str,
        env: &[(String, String)],
    ) {
        self.fork(times.0 - 10, parent, pid);
        self.record(times.0, pid, Event::Exec(Exec { cni: env.to_vec(), ..exec_of(parent, command) }));
        self.exit(times.1, pid, 0);
    }

    /// A thread's visit to another network namespace.
    pub(super) fn visit(&mut self, times: (u64, u64), thread: (u32, u32), net: u32) {
        for (at, net) in [(times.0, net), (times.1 - 1, HOST_NET)] {
            let enter = ns(at + self.offset);
            let namespaces = Namespaces { net, ..Namespaces::default() };
            let (args, strings) = ([0; 5], [const { String::new() }; 3]);
            let call = Syscall { sys: Sys::Setns, enter, ret: 0, args, namespaces, strings };
            self.thread_record(at + 1, thread.0, thread.1, Event::Syscall(call));
        }
    }

    pub(super) fn sys(&mut self, times: (u64, u64), thread: (u32, u32), sys: Sys, flags: u64, strings: [&str; 3]) {
        self.failing_sys(times, thread, sys, flags, strings, 0);
    }

    pub(super) fn failing_sys(
        &mut self,
        times: (u64, u64),
        thread: (u32, u32),
        sys: Sys,
        flags: u64,
        strings: [&str; 3],
        ret: i64,
    ) {
        let args = if sys == Sys::Mount { [0, 0, 0, flags, 0] } else { [flags, 0, 0, 0, 0] };
        let enter = ns(times.0 + self.offset);
        let strings = strings.map(str::to_owned);
        let call = Syscall { sys, enter, ret, args, namespaces: Namespaces::default(), strings };
        self.thread_record(times.1, thread.0, thread.1, Event::Syscall(call));
    }

    pub(super) fn cgroup(&mut self, at: u64, pid: u32, op: CgroupOp, path: &str, task: Option<u32>) {
        let cgroup = Cgroup {
            op,
            hierarchy: 0,
            id: CgroupId(CGROUP),
            task: task.map(Tgid),
            threadgroup: true,
            path: path.into(),
        };
        self.record(at, pid, Event::Cgroup(cgroup));
    }

    pub(super) fn write(&mut self, times: (u64, u64), pid: u32, dir: &str, file: &str, value: &str) {
        let exit = ns(times.1 + self.offset);
        let (dir, file, value) = (dir.into(), file.into(), value.into());
        self.record(
            times.0,
            pid,
            Event::CgroupWrite(CgroupWrite { exit, ret: 1, cgroup: CgroupId(CGROUP), dir, file, value }),
        );
    }

    pub(super) fn tick(&mut self, at: u64) {
        self.record(at, 1, Event::Tick);
    }

    fn push(&mut self, at: u64, event: CallEvent) {
        self.items.push((at + self.offset, Item::Call(event)));
    }

    /// A CRI call from `times.0` to `times.1`; the reply is OK with these fields.
    pub(super) fn call(&mut self, times: (u64, u64), method: &str, request: &[(Field, &str)], reply: &[(Field, &str)]) {
        let key = self.begin_call(times.0, method, request);
        let at = ns(times.1 + self.offset);
        self.push(times.1, CallEvent::Response { key, at, fields: fields(reply) });
        self.end_call(times.1, key, Ending::Status { code: 0, message: String::new() });
    }

    /// A call that fails.
    pub(super) fn failing_call(&mut self, times: (u64, u64), method: &str, request: &[(Field, &str)], message: &str) {
        let key = self.begin_call(times.0, method, request);
        self.end_call(times.1, key, Ending::Status { code: 2, message: message.into() });
    }

    pub(super) fn begin_call(&mut self, at: u64, method: &str, request: &[(Field, &str)]) -> CallKey {
        let image = method.contains("Image");
        let service = if image { "runtime.v1.ImageService" } else { "runtime.v1.RuntimeService" };
        self.begin(at, Protocol::Grpc, service, method, fields(request))
    }

    /// The same, with numbers besides.
    pub(super) fn begin_call_with(
        &mut self,
        at: u64,
        method: &str,
        request: &[(Field, &str)],
        numbers: &[(Field, u64)],
    ) -> CallKey {
        let mut fields = fields(request);
        fields.0.extend(numbers.iter().map(|(field, number)| (*field, Value::Number(*number))));
        self.begin(at, Protocol::Grpc, "runtime.v1.RuntimeService", method, fields)
    }

    fn begin(&mut self, at: u64, protocol: Protocol, service: &str, method: &str, fields: Fields) -> CallKey {
        self.streams += 2;
        let key = CallKey { conn: ConnId(self.offset + 1), stream: self.streams };
        let time = ns(at + self.offset);
        let start = CallStart {
            key,
            at: time,
            protocol,
            service: service.into(),
            method: method.into(),
            source: MethodSource::Literal,
            user_agent: Some("test".into()),
            client: None,
            timeout_ns: None,
            slot: None,
            signs: HeaderSigns::default(),
        };
        self.push(at, CallEvent::Start(start));
        self.push(at, CallEvent::Request { key, at: time, fields });
        key
    }

    /// The reply of a call.
    pub(super) fn reply(&mut self, at: u64, key: CallKey, reply: Vec<(Field, Value)>) {
        let time = ns(at + self.offset);
        self.push(at, CallEvent::Response { key, at: time, fields: Fields(reply) });
    }

    pub(super) fn end_call(&mut self, at: u64, key: CallKey, ending: Ending) {
        self.push(at, CallEvent::End { key, at: ns(at + self.offset), ending });
    }

    /// The end of a call whose request was before the attach, on the connection of all others or on another one.
    pub(super) fn unasked(&mut self, at: u64, other: bool, ending: Ending) {
        let key = CallKey { conn: ConnId(self.offset + 1 + 100 * u64::from(other)), stream: 1 };
        self.push(at, CallEvent::Unasked { key, at: ns(at + self.offset), ending });
    }

    /// A task call of the runtime to a shim.
    pub(super) fn task(&mut self, times: (u64, u64), method: &str, id: &str, pid: u32) {
        self.task_reply(times, method, id, vec![(Field::Pid, Value::Number(u64::from(pid)))]);
    }

    /// The same, with another reply.
    pub(super) fn task_reply(&mut self, times: (u64, u64), method: &str, id: &str, reply: Vec<(Field, Value)>) {
        let request = fields(&[(Field::TaskId, id)]);
        let key = self.begin(times.0, Protocol::Ttrpc, "containerd.task.v2.Task", method, request);
        let at = ns(times.1 + self.offset);
        self.push(times.1, CallEvent::Response { key, at, fields: Fields(reply) });
        self.end_call(times.1, key, Ending::Status { code: 0, message: String::new() });
    }

    /// An event that a shim forwards to the runtime.
    pub(super) fn task_event(&mut self, at: u64, topic: &str, id: &str, more: &[(Field, u64)]) {
        let mut event = fields(&[(Field::Topic, topic), (Field::TaskId, id), (Field::ExecId, id)]);
        event.0.extend(more.iter().map(|(field, number)| (*field, Value::Number(*number))));
        let key = self.begin(at, Protocol::Ttrpc, "containerd.services.events.ttrpc.v1.Events", "Forward", event);
        self.end_call(at, key, Ending::Status { code: 0, message: String::new() });
    }

    /// Removes what `fits`.
    pub(super) fn without(mut self, fits: impl Fn(u64, &Item) -> bool) -> Stream {
        self.items.retain(|(at, item)| !fits(*at, item));
        self
    }

    /// The messages of CRI calls that `fits` cannot be read.
    pub(super) fn compressed(mut self, fits: impl Fn(&CallStart) -> bool) -> Stream {
        let mut keys = BTreeSet::new();
        for (_, item) in &mut self.items {
            match item {
                Item::Call(CallEvent::Start(start)) if start.protocol == Protocol::Grpc && fits(start) => {
                    keys.insert(start.key);
                }
                Item::Call(CallEvent::Request { key, fields, .. } | CallEvent::Response { key, fields, .. })
                    if keys.contains(key) =>
                {
                    *fields = Fields(vec![(Field::Compressed, Value::Number(1))]);
                }
                _ => {}
            }
        }
        self
    }

    /// CRI calls for which `delay` gives a time get their name so much later than they begin; until then they are opaque.
    pub(super) fn named_late(mut self, mut delay: impl FnMut(&CallStart) -> Option<u64>) -> Stream {
        self.items.sort_by_key(|(at, _)| *at);
        let mut late: BTreeMap<CallKey, (u64, Named)> = BTreeMap::new();
        for (at, item) in &mut self.items {
            let Item::Call(CallEvent::Start(start)) = item else { continue };
            let Some(delay) = (start.protocol == Protocol::Grpc).then(|| delay(start)).flatten() else { continue };
            let slot = Some(Slot { epoch: 0, entry: start.method.len() as u32 });
            let evidence = "request shape".to_owned();
            let named = CallStart { source: MethodSource::Inferred, slot, ..start.clone() };
            let (request, response, end) = (None, None, None);
            late.insert(start.key, (*at + delay, Named { start: named, request, response, end, evidence }));
            let (service, method) = (String::new(), String::new());
            *start = CallStart { service, method, source: MethodSource::Opaque, slot, ..start.clone() };
        }
        self.items.retain(|(at, item)| {
            let Item::Call(event) = item else { return true };
            let (CallEvent::Request { key, .. } | CallEvent::Response { key, .. } | CallEvent::End { key, .. }) = event
            else {
                return true;
            };
            let Some((_, named)) = late.get_mut(key).filter(|(when, _)| at <= when) else { return true };
            match event.clone() {
                CallEvent::Request { at, fields, .. } => named.request = Some((at, fields)),
                CallEvent::Response { at, fields, .. } => named.response = Some((at, fields)),
                CallEvent::End { at, ending, .. } => named.end = Some((at, ending)),
                _ => {}
            }
            // An end is told of every call.
            matches!(event, CallEvent::End { .. })
        });
        self.items.extend(late.into_values().map(|(at, named)| (at, Item::Call(CallEvent::Named(Box::new(named))))));
        self
    }

    /// What is told while all of it is fed, in the order of time.
    pub(super) fn updates(self, config: Config) -> Vec<Update> {
        self.tables(config).1
    }

    /// Feeds all, in the order of time.
    pub(super) fn tables(mut self, config: Config) -> (Lifecycle, Vec<Update>) {
        self.items.sort_by_key(|(at, _)| *at);
        let mut lifecycle = Lifecycle::new(config);
        let mut updates = Vec::new();
        for (_, item) in &self.items {
            match item {
                Item::Record(record) => lifecycle.feed(record, &mut updates),
                Item::Call(event) => lifecycle.call(event, &mut updates),
            }
        }
        (lifecycle, updates)
    }

    /// Feeds all; finished traces, then those that are open.
    pub(super) fn feed(self, config: Config) -> Vec<Trace> {
        let (lifecycle, updates) = self.tables(config);
        let finished = updates.into_iter().filter_map(|update| match update {
            Update::Finished(trace) => Some(*trace),
            Update::Started(_) | Update::Stuck(_) | Update::Withdrawn { .. } | Update::Life(_) | Update::Node(_) => {
                None
            }
        });
        finished.chain(lifecycle.open()).collect()
    }

    /// The last that is known of each start.
    pub(super) fn feed_last(self, config: Config) -> Vec<Trace> {
        let (lifecycle, updates) = self.tables(config);
        let mut last: Vec<Trace> = Vec::new();
        let open = lifecycle.open().into_iter().map(|trace| Update::Finished(Box::new(trace)));
        for update in updates.into_iter().chain(open) {
            match update {
                Update::Started(_) | Update::Stuck(_) | Update::Life(_) | Update::Node(_) => {}
                Update::Finished(trace) => {
                    last.retain(|old| old.trace_id != trace.trace_id);
                    last.push(*trace);
                }
                Update::Withdrawn { trace_id, .. } => last.retain(|old| old.trace_id != trace_id),
            }
        }
        last
    }
}

pub(super) fn fields(pairs: &[(Field, &str)]) -> Fields {
    let value = |field: &Field, text: &str| match (field, text.parse()) {
        (Field::ContainerAttempt | Field::PodAttempt | Field::State | Field::ExitCode | Field::Timeout, Ok(number)) => {
            Value::Number(number)
        }
        _ => Value::Text(text.to_owned()),
    };
    Fields(pairs.iter().map(|(field, text)| (*field, value(field, text))).collect())
}

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

pub(super) fn exec_of(parent: u32, command: &str) -> Exec {
    // `FILE: ARGV` where the file is not argv[0].
    let (filename, argv) = match command.split_once(": ") {
        Some((file, argv)) => (file.to_owned(), words(argv)),
        None => (words(command)[0].clone(), words(command)),
    };
    Exec {
        parent: Tgid(parent),
        cgroup: CgroupId(1),
        namespaces: Namespaces::default(),
        container: false,
        incomplete: false,
        comm: "exe".into(),
        oom_score_adj: 0,
        filename,
        argv,
        cni: Vec::new(),
    }
}
