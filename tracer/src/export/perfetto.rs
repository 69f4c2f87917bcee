//! Chrome trace-event JSON, which Perfetto's viewer opens: a process for each trace, a thread for each kind of actor.
//!
//! A span is one complete event (`X`) whose `args` are the span as `podlapse.trace/v1` has it, so nothing is shown here
//! that is not there. Spans of one thread nest; what runs beside them has a lane of its own. A flow leads from a call to
//! each process that it caused. Events of a pod's life are instants (`i`) of a process of their own. Times are microseconds
//! of `CLOCK_MONOTONIC` with a fraction.
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::events::event_value;
use super::json;
use crate::trace::{LifeEvent, Span, SpanId, Trace};

/// Who does what a span shows, in the order of the tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Kubelet,
    Runtime,
    Cni,
    Shim,
    OciRuntime,
    Container,
}

/// Writes traces into one file.
#[derive(Debug, Default)]
pub struct Perfetto {
    /// Traces, and pods with events, so far; each is a process with that number.
    processes: u32,
    threads: u32,
    flows: u32,
    /// The process that the events of a pod are on, by the pod's name.
    lives: BTreeMap<String, u32>,
}

#[derive(Default, Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Of an instant: `p` is drawn through all threads of its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    /// Where a flow ends: `e` is the slice around its time, not the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
}

impl Perfetto {
    /// Adds a trace.
    ///
    /// # Errors
    /// What `out` gives.
    pub fn write(&mut self, out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
        let mut events = self.begin(out)?;
        self.processes += 1;
        self.process(&mut events, trace)?;
        let threads = self.threads(&mut events, trace)?;
        let us = |relative: u64| Some(trace.start.0.saturating_add(relative) as f64 / 1000.0);
        for span in &trace.spans {
            let name = if span.name.is_empty() { &span.stage } else { &span.name };
            let name = if span.end_ns.is_none() { format!("{name} (open)") } else { name.clone() };
            let (tid, dur) = (threads[&span.id], Some((end(trace, span) - span.start_ns) as f64 / 1000.0));
            let (cat, args) = (Some(span.stage.as_str()), Some(serde_json::to_value(json::span(span))?));
            let ts = us(span.start_ns);
            events.put(&Event {
                ph: "X",
                name: &name,
                cat,
                pid: self.processes,
                tid,
                ts,
                dur,
                args,
                ..Event::default()
            })?;
        }
        for (cause, process) in causes(trace) {
            let (from, to) = (threads[&cause.id], threads[&process.id]);
            if from == to {
                continue;
            }
            self.flows += 1;
            let ts = us(process.start_ns);
            let (cat, id) = (Some("flow"), Some(self.flows));
            let event = |ph, tid, bp| Event {
                ph,
                name: "caused",
                cat,
                pid: self.processes,
                tid,
                ts,
                id,
                bp,
                ..Event::default()
            };
            events.put(&event("s", from, None))?;
            events.put(&event("f", to, Some("e")))?;
        }
        Ok(())
    }

    /// Adds an event of a pod's life: an instant, whose `args` are the event as `podlapse.event/v1` has it.
    ///
    /// # Errors
    /// What `out` gives.
    pub fn event(&mut self, out: &mut dyn Write, event: &LifeEvent) -> io::Result<()> {
        let pod = event.pod.full_name();
        let mut events = self.begin(out)?;
        let known = self.lives.get(&pod).copied();
        let pid = known.unwrap_or(self.processes + 1);
        if known.is_none() {
            self.processes = pid;
            let args = Some(json!({ "name": format!("life of pod {pod}") }));
            events.put(&Event { ph: "M", name: "process_name", pid, args, ..Event::default() })?;
            self.lives.insert(pod, pid);
        }
        events.put(&Event {
            ph: "i",
            name: event.kind.name(),
            cat: Some("life"),
            pid,
            ts: Some(event.at.0 as f64 / 1000.0),
            s: Some("p"),
            args: Some(event_value(event)?),
            ..Event::default()
        })
    }

    /// Ends the file; one without traces is empty.
    ///
    /// # Errors
    /// What `out` gives.
    pub fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.processes > 0 { writeln!(out, "\n]}}") } else { Ok(()) }
    }

    fn begin<'a>(&self, out: &'a mut dyn Write) -> io::Result<Events<'a>> {
        let open = if self.processes == 0 { r#"{"displayTimeUnit":"ns","traceEvents":["# } else { "," };
        write!(out, "{open}")?;
        Ok(Events { out, first: true })
    }

    fn process(&self, events: &mut Events<'_>, trace: &Trace) -> io::Result<()> {
        let name = format!("pod {}", trace.pod.full_name());
        let mut about = |what, args| {
            events.put(&Event { ph: "M", name: what, pid: self.processes, args: Some(args), ..Event::default() })
        };
        about("process_name", json!({ "name": name }))?;
        about("process_labels", json!({ "labels": trace.outcome.name() }))?;
        about("process_sort_index", json!({ "sort_index": self.processes }))
    }

    /// Names the threads; says which one each span is on.
    fn threads(&mut self, events: &mut Events<'_>, trace: &Trace) -> io::Result<BTreeMap<SpanId, u32>> {
        let places = lanes(trace);
        let mut lanes: Vec<(Actor, usize)> = places.values().copied().collect();
        lanes.sort_unstable();
        lanes.dedup();
        for (number, (actor, lane)) in (self.threads + 1..).zip(&lanes) {
            let name = match lane {
                0 => actor.name(trace),
                _ => format!("{} {}", actor.name(trace), lane + 1),
            };
            for (what, args) in
                [("thread_name", json!({ "name": name })), ("thread_sort_index", json!({ "sort_index": number }))]
            {
                let (pid, tid, args) = (self.processes, number, Some(args));
                events.put(&Event { ph: "M", name: what, pid, tid, args, ..Event::default() })?;
            }
        }
        let numbers: BTreeMap<(Actor, usize), u32> = lanes.into_iter().zip(self.threads + 1..).collect();
        self.threads += u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        Ok(places.into_iter().map(|(id, place)| (id, numbers[&place])).collect())
    }
}

/// The array of events, one a line.
struct Events<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Events<'_> {
    fn put(&mut self, event: &Event<'_>) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        write!(self.out, "{separator}")?;
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }
}

impl Actor {
    fn of(span: &Span) -> Actor {
        let stage = span.stage.as_str();
        let inside = |stage: &str, call| stage.strip_prefix(call).is_some_and(|rest: &str| rest.starts_with('.'));
        match stage {
            _ if span.call.is_some() || stage.starts_with("kubelet.") => Actor::Kubelet,
            _ if stage.starts_with("sandbox.cni.") => Actor::Cni,
            _ if stage.contains(".oci.") => Actor::OciRuntime,
            _ if [".shim", ".task.", ".rootfs"].iter().any(|part| stage.contains(part)) => Actor::Shim,
            _ if inside(stage, "container.create") || inside(stage, "container.start") => Actor::Runtime,
            _ if stage.starts_with("container.") => Actor::Container,
            _ => Actor::Runtime,
        }
    }

    fn name(self, trace: &Trace) -> String {
        match self {
            Actor::Kubelet => "kubelet calls".into(),
            Actor::Runtime => trace.node.runtime.clone().unwrap_or_else(|| "runtime".into()),
            Actor::Cni => "CNI".into(),
            Actor::Shim => "shim".into(),
            Actor::OciRuntime => "OCI runtime".into(),
            Actor::Container => "containers".into(),
        }
    }
}

/// Where a span ends in the picture; an open one goes on to the end.
fn end(trace: &Trace, span: &Span) -> u64 {
    span.end_ns.unwrap_or(trace.total_ns).max(span.start_ns)
}

/// A lane for each span, of those of its actor: its parent's if it fits there, else the first where it fits.
fn lanes(trace: &Trace) -> BTreeMap<SpanId, (Actor, usize)> {
    // Parents come first, also where both are as long.
    let mut spans: Vec<&Span> = trace.spans.iter().collect();
    spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(end(trace, span))));
    let mut places: BTreeMap<SpanId, (Actor, usize)> = BTreeMap::new();
    // Of each lane, the ends of the spans that are open.
    let mut open: BTreeMap<(Actor, usize), Vec<u64>> = BTreeMap::new();
    for span in spans {
        let (actor, end) = (Actor::of(span), end(trace, span));
        let parent = span.parent.and_then(|parent| places.get(&parent)).filter(|place| place.0 == actor).copied();
        let first = (0..).map(|lane| (actor, lane));
        let fits = |place: &(Actor, usize)| {
            let ends = open.entry(*place).or_default();
            while ends.last().is_some_and(|end| *end <= span.start_ns) {
                ends.pop();
            }
            ends.last().is_none_or(|outer| end <= *outer)
        };
        if let Some(place) = parent.into_iter().chain(first).find(fits) {
            open.entry(place).or_default().push(end);
            places.insert(span.id, place);
        }
    }
    places
}

/// Each span that is a process, with what caused it: the nearest call or process around it.
fn causes(trace: &Trace) -> Vec<(&Span, &Span)> {
    let spans: BTreeMap<SpanId, &Span> = trace.spans.iter().map(|span| (span.id, span)).collect();
    let above = |span: &Span| span.parent.and_then(|parent| spans.get(&parent)).copied();
    let cause = |span: &Span| {
        std::iter::successors(above(span), |span| above(span)).find(|s| s.call.is_some() || s.process.is_some())
    };
    let processes = trace.spans.iter().filter(|span| span.process.is_some());
    processes.filter_map(|span| Some((cause(span)?, span))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{complete, failed, hostile};
    use super::*;

    fn file(traces: &[Trace]) -> Value {
        let (mut out, mut perfetto) = (Vec::new(), Perfetto::default());
        traces.iter().for_each(|trace| perfetto.write(&mut out, trace).unwrap());
        perfetto.end(&mut out).unwrap();
        serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out)))
    }

    fn ns(event: &Value, field: &str) -> u64 {
        (event[field].as_f64().unwrap() * 1000.0).round() as u64
    }

    fn events<'a>(file: &'a Value, ph: &'a str) -> impl Iterator<Item = &'a Value> {
        file["traceEvents"].as_array().unwrap().iter().filter(move |event| event["ph"] == ph)
    }

    /// What a viewer relies on, read back from the file alone.
    fn sound(file: &Value) {
        let range = |event: &Value| (ns(event, "ts"), ns(event, "ts") + ns(event, "dur"));
        let slices: Vec<&Value> = events(file, "X").collect();
        for (index, a) in slices.iter().enumerate() {
            for b in &slices[index + 1..] {
                let (x, y) = (range(a), range(b));
                let apart = x.1 <= y.0 || y.1 <= x.0;
                let nested = (x.0 <= y.0 && y.1 <= x.1) || (y.0 <= x.0 && x.1 <= y.1);
                assert!(a["tid"] != b["tid"] || apart || nested, "{a} and {b} cross");
            }
            let of = |what: &str| events(file, "M").filter(|m| m["name"] == what && m["pid"] == a["pid"]).count();
            assert_eq!(of("process_name"), 1);
            let name = |m: &&Value| m["name"] == "thread_name" && m["pid"] == a["pid"] && m["tid"] == a["tid"];
            assert_eq!(events(file, "M").filter(name).count(), 1, "{a}");
        }
        let around = |flow: &Value| {
            let at = ns(flow, "ts");
            let inside = |slice: &&&Value| slice["tid"] == flow["tid"] && range(slice).0 <= at && at <= range(slice).1;
            slices.iter().filter(inside).count()
        };
        let begins: Vec<&Value> = events(file, "s").collect();
        assert_eq!(begins.len(), events(file, "f").count());
        for begin in begins {
            let ends: Vec<&Value> = events(file, "f").filter(|end| end["id"] == begin["id"]).collect();
            assert_eq!((ends.len(), &ends[0]["bp"]), (1, &Value::from("e")));
            assert!(around(begin) > 0 && around(ends[0]) > 0, "{begin} is not in a slice");
        }
    }

    #[test]
    fn each_span_is_there_once() {
        let traces = [complete(), failed(), hostile()];
        let file = file(&traces);
        sound(&file);
        for (pid, trace) in (1..).zip(&traces) {
            let slices: Vec<&Value> = events(&file, "X").filter(|event| event["pid"] == pid).collect();
            assert_eq!(slices.len(), trace.spans.len());
            for (slice, span) in slices.iter().zip(&trace.spans) {
                assert_eq!(slice["args"], serde_json::to_value(json::span(span)).unwrap(), "as in the JSON");
                assert_eq!(ns(slice, "ts"), trace.start.0 + span.start_ns, "to the nanosecond");
                assert_eq!(ns(slice, "dur"), end(trace, span) - span.start_ns);
            }
        }
    }

    /// A real pod with three containers, as the documentation shows it.
    #[test]
    fn a_real_start() {
        let file: Value =
            serde_json::from_str(include_str!("../../../docs/example/three-containers.perfetto.json")).unwrap();
        sound(&file);
        let ids: std::collections::BTreeSet<u64> =
            events(&file, "X").map(|slice| slice["args"]["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), events(&file, "X").count());
        assert!(events(&file, "s").count() >= 10, "calls and the processes that they caused");
    }

    #[test]
    fn tracks_and_flows() {
        let mut trace = complete();
        // The network's other plugin, at the same time.
        let mut beside = trace.spans[5].clone();
        (beside.id, beside.name, beside.start_ns) = (SpanId(99), "loopback".into(), 20_000_000);
        trace.spans.push(beside);
        let file = file(&[trace]);
        sound(&file);
        let thread = |tid: &Value| {
            let name = events(&file, "M").find(|m| m["name"] == "thread_name" && m["tid"] == *tid).unwrap();
            name["args"]["name"].as_str().unwrap().to_owned()
        };
        let slices = events(&file, "X").map(|x| format!("{}: {}\n", thread(&x["tid"]), x["name"].as_str().unwrap()));
        let flows = events(&file, "s").zip(events(&file, "f"));
        let flows = flows.map(|(s, f)| format!("{} -> {} at {} us\n", thread(&s["tid"]), thread(&f["tid"]), f["ts"]));
        expect_test::expect![[r#"
            kubelet calls: RunPodSandbox
            containerd: netns
            containerd: cni
            CNI: bridge
            CNI: host-local
            CNI: portmap
            kubelet calls: CreateContainer
            kubelet calls: StartContainer
            containers: exec /bin/sleep
            CNI 2: loopback
            kubelet calls -> CNI at 81234576890.123 us
            kubelet calls -> CNI at 81234737890.123 us
            kubelet calls -> CNI 2 at 81234587890.123 us
        "#]]
        .assert_eq(&slices.chain(flows).collect::<String>());
    }

    #[test]
    fn nothing_of_nothing() {
        let mut out = Vec::new();
        Perfetto::default().end(&mut out).unwrap();
        assert_eq!(out, b"");
    }

    proptest::proptest! {
        /// Whatever overlaps what, slices of one thread nest.
        #[test]
        fn slices_nest(spans in proptest::collection::vec((0u64..50, 0u64..50, 0usize..4, proptest::option::of(0u32..9)), 0..20)) {
            let mut trace = complete();
            let sample = trace.spans[3].clone();
            let stages = ["sandbox.cni.a", "sandbox.oci.create", "kubelet.gap", "container.exec"];
            trace.spans = (1..).zip(spans).map(|(id, (start, length, stage, parent))| Span {
                id: SpanId(id),
                parent: parent.map(SpanId).filter(|parent| parent.0 > 0 && parent.0 < id),
                stage: stages[stage].into(),
                start_ns: start,
                end_ns: Some(start + length),
                ..sample.clone()
            }).collect();
            // Flows need their cause around them.
            trace.spans.iter_mut().for_each(|span| span.process = None);
            sound(&file(&[trace]));
        }
    }
}
