//! The command line.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValue};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::values::{From, PodName, Size, Span};
use crate::agent::Address;
use crate::probe;
use crate::recording::Selection;
use crate::stats::By;

/// Trace Kubernetes pod starts on this node, from RunPodSandbox to the execve of the entrypoint
#[derive(Debug, Parser)]
#[command(name = "podlapse", version, arg_required_else_help = true, after_help = EXIT)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

const EXIT: &str = "Exit code: 0 done, 1 failed or nothing matched, 2 wrong usage.";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Trace the next pod start, a certain pod's, or those that COMMAND causes; with --lifecycle up to the removal
    #[command(after_help = TRACE)]
    Trace(Trace),
    /// Trace, and keep what was seen in FILE, for `podlapse replay`
    #[command(after_help = RECORD)]
    Record(Record),
    /// Print the traces of a recording, as the live run did; needs no privilege
    #[command(after_help = REPLAY)]
    Replay(Replay),
    /// Latency histograms of stages: of this node's starts from now on, of recordings, or of logs of histograms
    #[command(after_help = STAGES)]
    Stages(Stages),
    /// Trace every start of this node, all the time: metrics, histograms and recent traces over HTTP
    #[command(after_help = AGENT)]
    Agent(Agent),
    /// Ask an agent whether it lives, or is ready: exit code 0 or 1, for probes in an image without a shell
    #[command(after_help = HEALTH)]
    Health(Health),
    /// List what runs: pod, sandbox, container, process, namespaces, cgroup; and find a pod from any of them
    #[command(after_help = PODS)]
    Pods(Pods),
    /// Compare two traces, stage by stage
    #[command(after_help = DIFF)]
    Diff(Diff),
    /// Check what this node allows, and say what to do about what is missing
    #[command(after_help = DOCTOR)]
    Doctor(Doctor),
    /// Say what a reason in a verdict means, how podlapse knows and what to check next, or what an event means; without
    /// one, list them
    #[command(after_help = "Example:\n  podlapse explain plugin_missing")]
    Explain {
        /// Reason, as in `verdict.reason`, or event, as in `event`
        reason: Option<String>,
    },
    /// Print a shell's completions
    #[command(after_help = "Example:\n  podlapse completions bash > /etc/bash_completion.d/podlapse")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, in roff
    #[command(after_help = "Example:\n  podlapse man | man -l -")]
    Man {
        /// Page of this subcommand
        command: Option<String>,
    },
}

const TRACE: &str = "\
In a bar of the waterfall # (or █) is where the stage is on the critical path, and - (or ▒) where others take longer; a \
line marked * (or ●) is on the path for at least half of its time. Stdout holds traces only; COMMAND's own output goes \
to stderr, and its exit code is said there, not returned. Ctrl-C prints what is known; a second Ctrl-C ends at once. In \
the last line, `named` is the share of the time that belongs to a stage both of whose edges were seen, and `probes` the \
kernel interface that was used.

Examples:
  podlapse trace                               the next pod start on this node
  podlapse trace --pod default/web-0           the next start of that pod, or restart of a container in it
  podlapse trace --next 5 -o json              five starts, as JSON Lines
  podlapse trace -- kubectl apply -f pod.yaml  the starts that arrive while COMMAND runs
  podlapse trace --lifecycle --pod default/web-0
                                               that pod, whether it runs or is to start, until it is removed";

const RECORD: &str = "\
A recording holds identities and times; payloads are zeroed before they are written. It is readable while it is \
written and after a crash, has mode 0600, and is never written through a symlink.

Examples:
  podlapse record start.plr                              the next pod start
  podlapse record start.plr --pod default/web-0 -o json
  podlapse record start.plr -- kubectl apply -f pod.yaml";

const REPLAY: &str = "\
Without --pod, --uid, --next, --from, --list or --all, the starts that the recording was made for. A recording that is \
still being written can be read as well.

Examples:
  podlapse replay start.plr                the waterfall again
  podlapse replay start.plr --all -o json  every start that the recording holds
  podlapse replay node.plr --list          a line for each of them
  podlapse replay node.plr --from 5m       those that began five minutes into it, or later
  podlapse replay start.plr -o perfetto > start.json
                                           for Perfetto's viewer, ui.perfetto.dev";

const STAGES: &str = "\
Each value is the duration of one span of a stage; `start` is a whole start, `*.runtime` what remains inside one call. \
The share is the time that a stage owned of all the time of these starts, and adds up to 100%. Durations have three \
significant digits from 1us to 1h; what lies outside is counted as the nearest of the two, and is said. Every start \
of a pod counts, those of a recording too; restarts of a container do not.

Examples:
  podlapse stages                               a table that refreshes, until Ctrl-C
  podlapse stages --count 50 -o hdr > node.hlog fifty starts, for later
  podlapse stages --from a.plr b.plr            the starts of two recordings
  podlapse stages --from *.hlog --by handler    the logs of many nodes as one
  podlapse stages --compare before.plr after.plr
  podlapse stages --agent unix:/run/podlapse/api.sock
                                                what the agent of this node has seen";

const AGENT: &str = "\
Waits for a runtime where there is none, and goes on when it restarts. SIGTERM ends it with code 0.

Examples:
  podlapse agent                                metrics on 127.0.0.1:9797, the API on /run/podlapse/api.sock
  podlapse agent --lines - --metrics-listen off each trace and event as a line of JSON
  curl -s http://127.0.0.1:9797/metrics
  curl -s --unix-socket /run/podlapse/api.sock 'http://podlapse/api/v1/traces?failed=true'";

const HEALTH: &str = "\
Silent where all is well; else the reason is on stderr. The answer is waited for three seconds.

Examples:
  podlapse health                                     does the agent of this node go on?
  podlapse health --ready                             is it attached to a runtime?
  podlapse health --url unix:/run/podlapse/api.sock";

const PODS: &str = "\
Nothing is attached and nothing changed: the runtime is asked over the CRI, the rest is read from /proc and the cgroup \
files. In the table, OWN NAMESPACES are those that a container does not share with its sandbox, and a sandbox not with \
the node; what is unknown is left empty, - is no limit. Columns for which there is no room (80 where stdout is no \
terminal; COLUMNS=200 says otherwise) are left out; -o json has everything.

Examples:
  podlapse pods                             all pods of the runtimes that answer
  podlapse pods --pod default/web-0         one, with everything that is known
  podlapse pods --pid 4711 -o json          whose process that is
  podlapse pods --container 3f2a            whose container that is
  podlapse pods --cgroup /kubepods/pod3f2a  whose cgroup that is
  podlapse pods --bootstrap proc            without asking a runtime: no names, no images";

const DIFF: &str = "\
Stages are in the order of the change of their own time (self), which adds up to the change of the total; wall is the \
time during which a span of the stage was open. A `-` is a stage that this trace does not have.

Examples:
  podlapse replay before.plr -o json > a.json
  podlapse replay after.plr -o json | podlapse diff a.json -
  podlapse replay two-starts.plr --all -o json | podlapse diff -";

const DOCTOR: &str = "\
Examples:
  podlapse doctor          this kernel and the runtime's socket
  podlapse doctor --hooks  the kernel alone: load and attach every hook, then detach";

#[derive(Debug, Args)]
pub(super) struct Trace {
    #[command(flatten)]
    pub(super) starts: Starts,
    #[command(flatten)]
    pub(super) live: Live,
    #[command(flatten)]
    pub(super) show: Show,
    /// Also keep what was seen in FILE, for `podlapse replay`
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    /// Replace FILE
    #[arg(long, requires = "record")]
    pub(super) force: bool,
    /// Run COMMAND, and trace the starts that arrive while it runs
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(super) struct Record {
    /// The recording
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) starts: Starts,
    #[command(flatten)]
    pub(super) live: Live,
    #[command(flatten)]
    pub(super) show: Show,
    /// Replace FILE
    #[arg(long)]
    pub(super) force: bool,
    /// Run COMMAND, and trace the starts that arrive while it runs
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// The recording
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) starts: Starts,
    /// Every start that the recording holds
    #[arg(long, conflicts_with_all = ["pod", "uid", "next", "restarts"])]
    pub(super) all: bool,
    /// Only starts that began at TIME or later: RFC 3339, or a duration from the recording's begin
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Which starts")]
    pub(super) from: Option<From>,
    /// One line a start instead of the traces: what the recording holds; of all starts, unless told which
    #[arg(long, conflicts_with_all = ["output", "ascii", "min", "lifecycle"])]
    pub(super) list: bool,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Which starts, and when one is over.
#[derive(Debug, Args)]
pub(super) struct Starts {
    /// Follow the pods to their removal: a line an event of their life as it happens, then the traces of their starts;
    /// with --pod or --uid also a pod that runs already, and --next counts pods
    #[arg(long, help_heading = "Which starts")]
    pub(super) lifecycle: bool,
    /// Only starts of this pod
    #[arg(long, value_name = "NS/NAME", help_heading = "Which starts")]
    pub(super) pod: Option<PodName>,
    /// Only starts of the pod with this UID
    #[arg(long, value_name = "UID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Which starts")]
    pub(super) uid: Option<String>,
    /// How many starts [default: 1; with COMMAND or in replay: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Which starts")]
    pub(super) next: Option<u32>,
    /// Also later attempts of a container in a sandbox that runs; with --pod or --uid they always count
    #[arg(long, help_heading = "Which starts")]
    pub(super) restarts: bool,
    /// A start is over when N containers reached their execve, without waiting for --settle
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Which starts")]
    pub(super) containers: Option<u32>,
    /// A start is over when no call of its sandbox was open for so long [default: 2s; in replay: as recorded]
    #[arg(long, value_name = "DURATION", help_heading = "Which starts")]
    pub(super) settle: Option<Span>,
    /// Say what a start waits for that takes longer, then each time that it took twice as long; 0s: never [default:
    /// 10s; in replay: as recorded]
    #[arg(long, value_name = "DURATION", help_heading = "Which starts")]
    pub(super) stuck_after: Option<Span>,
}

impl Starts {
    pub(super) fn selection(&self, command: bool) -> Selection {
        Selection {
            pod: self.pod.as_ref().map(|pod| (pod.namespace.clone(), pod.name.clone())),
            uid: self.uid.clone(),
            next: self.next.or((!command).then_some(1)),
            command,
            restarts: self.restarts,
            lifecycle: self.lifecycle,
        }
    }

    /// Whether any option says which starts.
    pub(super) fn selects(&self) -> bool {
        self.pod.is_some() || self.uid.is_some() || self.next.is_some() || self.restarts
    }
}

#[derive(Debug, Args)]
pub(super) struct Live {
    #[command(flatten)]
    pub(super) attach: Attach,
    /// Give up after so long; with COMMAND, so long after its end [default: 5m; with --lifecycle: never]
    #[arg(long, value_name = "DURATION")]
    pub(super) timeout: Option<Span>,
}

/// Which runtime is watched, and how.
#[derive(Debug, Args)]
pub(super) struct Attach {
    /// The runtime's CRI socket: a path, or `auto` for the first of containerd, k3s, rke2, microk8s, k0s, CRI-O
    #[arg(long, value_name = "PATH", default_value = "auto", env = "PODLAPSE_SOCKET")]
    pub(super) socket: Socket,
    /// Who says which pods and containers exist already
    #[arg(long, value_enum, value_name = "SOURCE", default_value = "cri")]
    pub(super) bootstrap: Existing,
    /// How bytes are read off the runtime's sockets
    #[arg(long, value_enum, value_name = "BACKEND", default_value = "auto")]
    pub(super) backend: Backend,
}

#[derive(Debug, Args)]
pub(super) struct Agent {
    #[command(flatten)]
    pub(super) attach: Attach,
    /// Where metrics, /healthz and /readyz are served: HOST:PORT, unix:PATH, or off
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9797", env = "PODLAPSE_METRICS_LISTEN")]
    pub(super) metrics_listen: Listen,
    /// Where /api/v1/traces and /api/v1/stages are served, too
    #[arg(long, value_name = "ADDRESS", default_value = "unix:/run/podlapse/api.sock", env = "PODLAPSE_API_LISTEN", value_parser = Listen::here)]
    pub(super) api_listen: Listen,
    /// Traces and events as JSON Lines: FILE, - for stdout, or off
    #[arg(long, value_name = "FILE", default_value = "off", env = "PODLAPSE_LINES")]
    pub(super) lines: Lines,
    /// FILE becomes FILE.1 before it is larger
    #[arg(long, value_name = "SIZE", default_value = "64MiB", env = "PODLAPSE_LINES_MAX_SIZE")]
    pub(super) lines_max_size: Size,
    /// How many files are kept beside FILE; the oldest goes
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(super) lines_keep: u32,
    /// A start is over when no call of its sandbox was open for so long
    #[arg(long, value_name = "DURATION", default_value = "2s", env = "PODLAPSE_SETTLE")]
    pub(super) settle: Span,
    /// Say what a start waits for that takes longer, then each time that it took twice as long; 0s: never
    #[arg(long, value_name = "DURATION", default_value = "10s", env = "PODLAPSE_STUCK_AFTER")]
    pub(super) stuck_after: Span,
    /// Have the kernel count the time of all BPF programs, for podlapse_bpf_run_seconds_total; that makes each run of
    /// each one slower by two readings of the clock
    #[arg(long, env = "PODLAPSE_BPF_STATS")]
    pub(super) bpf_stats: bool,
}

#[derive(Debug, Args)]
pub(super) struct Health {
    /// Where the agent listens, for metrics or for its API: HOST:PORT, http://HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9797", env = "PODLAPSE_METRICS_LISTEN")]
    pub(super) url: Address,
    /// Ask /readyz, not /healthz
    #[arg(long)]
    pub(super) ready: bool,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listen {
    Off,
    Tcp(std::net::SocketAddr),
    Unix(PathBuf),
}

impl Listen {
    /// Of this machine alone: pods and their failures are not for everybody who reaches the node.
    fn here(text: &str) -> Result<Listen, &'static str> {
        match text.parse()? {
            Listen::Tcp(address) if !address.ip().is_loopback() => {
                Err("the API has no authentication: give a loopback address, unix:/PATH, or off")
            }
            here => Ok(here),
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Listen, &'static str> {
        const HELP: &str = "give HOST:PORT with an IP address, unix:/PATH, or off";
        match text.strip_prefix("unix:").map(|path| path.strip_prefix("//").unwrap_or(path)) {
            Some(path) if path.starts_with('/') => Ok(Listen::Unix(path.into())),
            Some(_) => Err(HELP),
            None if text == "off" => Ok(Listen::Off),
            None => text.parse().map(Listen::Tcp).map_err(|_| HELP),
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::Off => f.write_str("off"),
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    Off,
    Stdout,
    File(PathBuf),
}

impl std::str::FromStr for Lines {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Lines, std::convert::Infallible> {
        Ok(match text {
            "off" => Lines::Off,
            "-" => Lines::Stdout,
            path => Lines::File(path.into()),
        })
    }
}

/// `--bootstrap` of a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Existing {
    /// The runtime, asked once and beside the run; /proc where it does not answer
    Cri,
    /// /proc and cgroup paths alone: no names
    Proc,
    /// Nobody: what is older than podlapse stays unknown
    Off,
}

impl std::convert::From<Existing> for probe::Bootstrap {
    fn from(existing: Existing) -> probe::Bootstrap {
        match existing {
            Existing::Cri => probe::Bootstrap::Cri,
            Existing::Proc => probe::Bootstrap::Proc,
            Existing::Off => probe::Bootstrap::Off,
        }
    }
}

/// `--backend`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// Trampolines, or tracepoints where the kernel refuses them
    Auto,
    /// At every read and write of the node: works everywhere
    Tracepoint,
    /// At reads and writes of unix stream sockets alone
    Trampoline,
}

impl std::convert::From<Backend> for probe::Choice {
    fn from(backend: Backend) -> probe::Choice {
        match backend {
            Backend::Auto => probe::Choice::Auto,
            Backend::Tracepoint => probe::Choice::Only(probe::Backend::Tracepoint),
            Backend::Trampoline => probe::Choice::Only(probe::Backend::Trampoline),
        }
    }
}

/// `--socket`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket(pub(super) Option<PathBuf>);

impl std::str::FromStr for Socket {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Socket, &'static str> {
        match text.strip_prefix("unix://").unwrap_or(text) {
            "auto" => Ok(Socket(None)),
            path if path.starts_with('/') => Ok(Socket(Some(path.into()))),
            _ => Err("give an absolute path, or auto"),
        }
    }
}

/// How traces are printed.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "tree")]
    pub(super) output: Format,
    /// Only ASCII in the waterfall, as always when stdout is not a terminal
    #[arg(long)]
    pub(super) ascii: bool,
    /// Leave stages out of the waterfall that are shorter; how many is said. What failed or is open stays
    #[arg(long, value_name = "DURATION")]
    pub(super) min: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Waterfall
    Tree,
    /// podlapse.trace/v1, one object a line, each as soon as it is final; with --lifecycle podlapse.event/v1 between
    Json,
    /// Chrome trace-event JSON, for Perfetto's viewer (ui.perfetto.dev)
    Perfetto,
}

#[derive(Debug, Args)]
pub(super) struct Stages {
    /// Recordings, or logs that -o hdr wrote, instead of this node's starts
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["duration", "count"])]
    pub(super) from: Vec<PathBuf>,
    /// Two recordings or logs side by side, with B's quantiles as multiples of A's
    #[arg(long, value_names = ["A", "B"], num_args = 2, conflicts_with_all = ["from", "duration", "count"])]
    pub(super) compare: Vec<PathBuf>,
    /// An agent's API, instead of this node's starts from now on: unix:PATH or HOST:PORT; several are added up
    #[arg(long, value_name = "ADDRESS", num_args = 1.., conflicts_with_all = ["from", "compare", "duration", "count"])]
    pub(super) agent: Vec<Address>,
    /// End after so long
    #[arg(long, value_name = "DURATION")]
    pub(super) duration: Option<Span>,
    /// End when so many starts are over
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) count: Option<u32>,
    /// Break the table down
    #[arg(long, value_enum)]
    pub(super) by: Option<By>,
    #[command(flatten)]
    pub(super) attach: Attach,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Histograms,
}

impl Stages {
    /// Ends the process where options do not go together in a way that clap does not know.
    pub(super) fn check(&self) {
        if !self.compare.is_empty() && self.output == Histograms::Hdr {
            let text = "--compare has no -o hdr: two logs are two files";
            <Cli as clap::CommandFactory>::command().error(clap::error::ErrorKind::ArgumentConflict, text).exit();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Histograms {
    /// For people
    Table,
    /// podlapse.stages/v1, one object
    Json,
    /// HdrHistogram log (V2), for --from and other tools
    Hdr,
}

impl ValueEnum for By {
    fn value_variants<'a>() -> &'a [By] {
        &By::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            By::Plugin => "CNI plugin; only their stages",
            By::Handler => "Runtime handler; - is the default one, or one that was not seen",
            By::Namespace => "The pod's namespace",
            By::Image => "The container's image; only the stages of containers",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Pods {
    #[command(flatten)]
    pub(super) which: Which,
    /// A runtime's CRI socket: a path, or `auto` for all that answer; may be given more than once
    #[arg(long, value_name = "PATH", default_value = "auto", env = "PODLAPSE_SOCKET")]
    pub(super) socket: Vec<Socket>,
    /// Where names and states come from
    #[arg(long, value_enum, value_name = "SOURCE", default_value = "cri")]
    pub(super) bootstrap: Bootstrap,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Listing,
    /// Only ASCII in the table, as always when stdout is not a terminal
    #[arg(long)]
    pub(super) ascii: bool,
}

/// Which pods; all without one.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(super) struct Which {
    /// Only the pods of this name, or with this UID
    #[arg(long, value_name = "[NS/]NAME|UID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Which pods")]
    pub(super) pod: Option<String>,
    /// The pod of this process: any process of a container, or its shim
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Which pods")]
    pub(super) pid: Option<u32>,
    /// The pod of the container or sandbox with this id, or with the only id that begins so
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new(), help_heading = "Which pods")]
    pub(super) container: Option<String>,
    /// The pod of this cgroup, as in /proc/PID/cgroup or below a cgroup mount
    #[arg(long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new(), help_heading = "Which pods")]
    pub(super) cgroup: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Bootstrap {
    /// The runtimes' own lists, completed from /proc
    Cri,
    /// /proc and cgroup paths alone; --socket then chooses whose pods
    Proc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Listing {
    /// Table; with a query, all that is known of the pod
    Table,
    /// One podlapse.pods/v1 object
    Json,
}

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// A trace as JSON, or two of them; - is stdin
    #[arg(value_name = "A.json")]
    pub(super) a: PathBuf,
    /// The trace to compare it with; - is stdin
    #[arg(value_name = "B.json")]
    pub(super) b: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(super) output: DiffFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DiffFormat {
    /// For people
    Table,
    /// podlapse.diff/v1, one object
    Json,
}

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Only the kernel: load and attach every hook, then detach; needs no runtime
    #[arg(long)]
    pub(super) hooks: bool,
    /// The runtime's CRI socket: a path, or `auto`; with --hooks nobody is asked
    #[arg(long, value_name = "PATH", default_value = "auto", env = "PODLAPSE_SOCKET")]
    pub(super) socket: Socket,
    /// How bytes are to be read off the runtime's sockets
    #[arg(long, value_enum, value_name = "BACKEND", default_value = "auto")]
    pub(super) backend: Backend,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(super) output: Report,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Report {
    /// For people
    Text,
    /// One JSON object
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}", command.get_name());
        }
    }

    #[test]
    fn one_start_unless_a_command_says_which() {
        let selection = |line: &str| match Cli::parse_from(line.split(' ')).command {
            Command::Trace(trace) => trace.starts.selection(!trace.command.is_empty()),
            other => panic!("{other:?}"),
        };
        assert_eq!(selection("podlapse trace").next, Some(1));
        assert_eq!(selection("podlapse trace -- true").next, None);
        assert_eq!(selection("podlapse trace --next 3 -- true --next 4").next, Some(3));
        assert_eq!(selection("podlapse trace --pod a/b").pod, Some(("a".into(), "b".into())));
    }
}
