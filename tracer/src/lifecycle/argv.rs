//! What a program is, from its arguments and `CNI_*` variables. Never from `comm`: runc and crun re-execute
//! themselves from memory and are then called `exe`, `6` or `memfd:runc_clon`.

use std::path::Path;

use crate::ids::{ContainerId, PodUid};
use crate::record::Exec;

/// A helper of the runtime that an exec shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// A CNI plugin, or a delegate that one runs.
    Cni(Cni),
    /// `containerd-shim-runc-v2 … -id ID [start|delete]`.
    Shim { action: ShimAction, id: ContainerId },
    /// `conmon -b BUNDLE -c ID …` of CRI-O: forks the monitor of one container and ends.
    Conmon { id: ContainerId },
    /// `pinns -d DIR -f NAME --net …` of CRI-O: makes namespaces and pins them; the path of the network's, if it is one.
    Pinns { netns: Option<String> },
    /// `runc|crun|… ACTION … ID`.
    Oci { action: OciAction, id: ContainerId },
    /// `runc init`.
    Init,
    /// Anything else.
    Other,
}

/// What a shim was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShimAction {
    /// Start the daemon, print its address, exit.
    Start,
    /// Be the daemon (no action word).
    Daemon,
    /// Clean up.
    Delete,
}

/// What an OCI runtime was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OciAction {
    Create,
    Start,
    Exec,
    /// Any other action on a container: delete, kill, state, pause, …
    Other,
}

/// The environment of a CNI plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cni {
    pub(super) plugin: String,
    pub(super) command: String,
    pub(super) container: ContainerId,
    pub(super) netns: String,
    pub(super) uid: Option<PodUid>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

/// Recognises the program of an exec.
pub(super) fn program(exec: &Exec) -> Program {
    if let Some(cni) = cni(exec) {
        return Program::Cni(cni);
    }
    classify(&exec.argv)
}

/// Recognises a program by its arguments alone.
pub(super) fn classify(argv: &[String]) -> Program {
    let Some((program, args)) = argv.split_first() else { return Program::Other };
    if args == ["init"] {
        return Program::Init;
    }
    let base = basename(program);
    match base {
        "conmon" => conmon(args),
        "pinns" => Some(pinns(args)),
        _ => shim(base, args).or_else(|| oci(base, args)),
    }
    .unwrap_or(Program::Other)
}

/// The value of an option, by its short or long name.
fn value<'a>(args: &'a [String], short: &str, long: &str) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(at, arg)| match arg.strip_prefix(long) {
        Some(rest) if rest.starts_with('=') => Some(&rest[1..]),
        Some("") => args.get(at + 1).map(String::as_str),
        _ if arg == short => args.get(at + 1).map(String::as_str),
        _ => None,
    })
}

/// conmon `src/cli.c`. With `--sync` it does not fork; for an exec it has `-e`.
fn conmon(args: &[String]) -> Option<Program> {
    let id = value(args, "-c", "--cid").filter(|id| !id.is_empty())?;
    let id = ContainerId(id.to_owned());
    let flag = |names: [&str; 2]| args.iter().any(|arg| names.contains(&arg.as_str()));
    Some(if flag(["-e", "--exec"]) {
        Program::Oci { action: OciAction::Exec, id }
    } else if flag(["--sync", "--sync=true"]) {
        Program::Shim { action: ShimAction::Daemon, id }
    } else {
        Program::Conmon { id }
    })
}

/// CRI-O `pinns/src/pinns.c`: each namespace of kind K is pinned at `DIR/Kns/NAME`.
fn pinns(args: &[String]) -> Program {
    let net = args.iter().any(|arg| arg == "-n" || arg == "--net" || arg.starts_with("--net="));
    let (dir, name) = (value(args, "-d", "--dir"), value(args, "-f", "--filename"));
    Program::Pinns { netns: dir.zip(name).filter(|_| net).map(|(dir, name)| format!("{dir}/netns/{name}")) }
}

/// The last component of a path.
pub(super) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A plugin is run by its path alone, out of a folder of `CNI_PATH` (CNI specification, "Execution Protocol"); programs
/// that a plugin runs, such as iptables or cat, inherit the variables, but have arguments or are found elsewhere.
fn cni(exec: &Exec) -> Option<Cni> {
    let var = |name: &str| exec.variable(name);
    let (command, container) = (var("CNI_COMMAND")?, var("CNI_CONTAINERID")?);
    let installed = var("CNI_PATH").is_none_or(|path| is_installed(&exec.filename, path));
    if !is_alone(exec) || !installed {
        return None;
    }
    let args = var("CNI_ARGS").unwrap_or_default();
    let arg = |name: &str| {
        let value = args.split(';').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
        value.map(|(_, value)| value.to_owned()).filter(|value| !value.is_empty())
    };
    Some(Cni {
        plugin: basename(&exec.filename).to_owned(),
        command: command.to_owned(),
        // Both say the sandbox; the variable is always there, the argument only from Kubernetes.
        container: ContainerId(arg("K8S_POD_INFRA_CONTAINER_ID").unwrap_or_else(|| container.to_owned())),
        netns: var("CNI_NETNS").unwrap_or_default().to_owned(),
        uid: arg("K8S_POD_UID").map(PodUid),
        namespace: arg("K8S_POD_NAMESPACE"),
        name: arg("K8S_POD_NAME"),
    })
}

/// Whether a file is in one of the folders of `CNI_PATH`.
pub(super) fn is_installed(file: &str, path: &str) -> bool {
    let place = Path::new(file).parent();
    path.split(':').any(|folder| place == Some(Path::new(folder)))
}

/// Whether a program has no arguments. Of a script the kernel makes `INTERPRETER [ARGUMENT] FILE`, and keeps the file's
/// name (`fs/binfmt_script.c`); when an `env` then runs the interpreter, the process is known.
fn is_alone(exec: &Exec) -> bool {
    match &exec.argv[..] {
        [_] => true,
        [.., last] => *last == exec.filename,
        [] => false,
    }
}

/// containerd pkg/shim `shim.go`: Go flags (one dash), then one action word or none.
fn shim(base: &str, args: &[String]) -> Option<Program> {
    const VALUED: [&str; 6] = ["namespace", "address", "publish-binary", "id", "bundle", "socket"];
    let (mut id, mut namespace, mut action) = (None, false, None);
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            action = Some(arg);
            break;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None if VALUED.contains(&flag) => (flag, args.next()),
            None => (flag, None),
        };
        match name {
            "id" => id = value,
            "namespace" => namespace = true,
            _ => {}
        }
    }
    let action = match action {
        None => ShimAction::Daemon,
        Some("start") => ShimAction::Start,
        Some("delete") => ShimAction::Delete,
        Some(_) => return None,
    };
    let id = id.filter(|id| !id.is_empty() && (namespace || base.starts_with("containerd-shim")))?;
    Some(Program::Shim { action, id: ContainerId(id.to_owned()) })
}

/// The command line that runc, crun, youki and runsc share (opencontainers/runtime-tools "command-line interface").
fn oci(base: &str, args: &[String]) -> Option<Program> {
    const RUNTIMES: [&str; 5] = ["runc", "crun", "youki", "runsc", "kata-runtime"];
    const GLOBAL: [&str; 8] =
        ["--root", "--log", "--log-format", "--log-level", "--criu", "--rootless", "--cgroup-manager", "-l"];
    let mut rooted = false;
    let mut at = 0;
    while let Some(flag) = args.get(at).filter(|arg| arg.starts_with('-')) {
        rooted |= flag == "--root" || flag.starts_with("--root=");
        at += if GLOBAL.contains(&flag.as_str()) { 2 } else { 1 };
    }
    let (action, rest) = args.get(at..)?.split_first()?;
    let bundled = rest.iter().any(|arg| arg == "--bundle" || arg == "-b" || arg.starts_with("--bundle="));
    let action = match action.as_str() {
        "create" => OciAction::Create,
        "start" => OciAction::Start,
        "exec" => OciAction::Exec,
        "delete" | "kill" | "state" | "pause" | "resume" | "update" | "ps" | "checkpoint" | "restore" | "events" => {
            OciAction::Other
        }
        _ => return None,
    };
    if !(RUNTIMES.contains(&base) || rooted || (action == OciAction::Create && bundled)) {
        return None;
    }
    // The id is the last word of create and start. Of exec too, when the process comes as a file, as shims pass it;
    // elsewhere it is the first word that is not a flag or a flag's value.
    let file = rest.iter().any(|arg| arg == "--process" || arg == "-p" || arg.starts_with("--process="));
    let id = match action {
        OciAction::Create | OciAction::Start => rest.last(),
        OciAction::Exec if file => rest.last(),
        OciAction::Exec | OciAction::Other => rest.iter().find(|arg| !arg.starts_with('-')),
    }?;
    Some(Program::Oci { action, id: ContainerId(id.clone()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(command: &str, expect: Expect) {
        let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let text = match classify(&argv) {
            Program::Shim { action, id } => format!("shim {action:?} {id}"),
            Program::Oci { action, id } => format!("oci {action:?} {id}"),
            other => format!("{other:?}"),
        };
        expect.assert_eq(&text);
    }

    /// `FILE: ARGV` with the variables of a plugin; the plugin's name.
    fn plugin(command: &str, path: Option<&str>) -> Option<String> {
        let (filename, argv) = command.split_once(": ")?;
        let path = path.map(|path| ("CNI_PATH", path));
        let cni = [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "SB")].into_iter().chain(path);
        let exec = Exec {
            parent: crate::ids::Tgid(1),
            cgroup: crate::ids::CgroupId(1),
            namespaces: crate::record::Namespaces::default(),
            container: false,
            incomplete: false,
            comm: "exe".into(),
            oom_score_adj: 0,
            filename: filename.into(),
            argv: argv.split('|').map(str::to_owned).collect(),
            cni: cni.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        };
        match program(&exec) {
            Program::Cni(cni) => Some(cni.plugin),
            _ => None,
        }
    }

    #[test]
    fn cni_plugins() {
        let path = Some("/usr/lib/cni:/opt//cni/bin/");
        let yes = |command, name: &str| assert_eq!(plugin(command, path).as_deref(), Some(name), "{command}");
        yes("/opt/cni/bin/bridge: /opt/cni/bin/bridge", "bridge");
        yes("/usr/lib/cni/bridge: /usr/lib/cni/bridge", "bridge");
        yes("/opt/cni/bin/tune.sh: /bin/sh|/opt/cni/bin/tune.sh", "tune.sh");
        yes("/opt/cni/bin/tune: /bin/bash|-eu -o pipefail|/opt/cni/bin/tune", "tune");
        yes("/opt/cni/bin/tune: /usr/bin/env|python3|/opt/cni/bin/tune", "tune");
        let no = |command| assert_eq!(plugin(command, path), None, "{command}");
        no("/bin/cat: cat");
        no("/bin/date: /bin/date");
        no("/bin/cat: cat|/opt/cni/bin/tune");
        no("/usr/bin/python3: python3|/opt/cni/bin/tune");
        no("/usr/sbin/iptables: /usr/sbin/iptables|-t|nat|-S");
        no("/usr/local/bin/mtu.sh: /bin/sh|/usr/local/bin/mtu.sh");
        no("/opt/cni/bin/tune: /bin/sh|/opt/cni/bin/tune|eth0");
        assert_eq!(plugin("/x/bridge: /x/bridge", None).as_deref(), Some("bridge"), "its folders are not known");
    }

    #[test]
    fn shims() {
        let shim = "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -address /run/c.sock";
        check(&format!("{shim} -publish-binary /usr/bin/containerd -id SB start"), expect!["shim Start SB"]);
        check(&format!("{shim} -publish-binary /usr/bin/containerd -id SB -debug start"), expect!["shim Start SB"]);
        check("/proc/self/exe -namespace k8s.io -id SB -address /run/c.sock", expect!["shim Daemon SB"]);
        check(&format!("{shim} -id SB -bundle /run/b delete"), expect!["shim Delete SB"]);
        check("containerd-shim-runc-v2 -info", expect!["Other"]);
    }

    #[test]
    fn crio() {
        let conmon =
            "/usr/libexec/crio/conmon -b /run/c -c CT --exit-dir /var/run/crio/exits -r /usr/bin/runc -u CT -s";
        check(conmon, expect![[r#"Conmon { id: ContainerId("CT") }"#]]);
        check("conmon --cid=CT --sync -r /usr/bin/crun", expect!["shim Daemon CT"]);
        check("conmon -c CT -r /usr/bin/runc -e --exec-process-spec /tmp/p", expect!["oci Exec CT"]);
        check("conmon --version", expect!["Other"]);
        let pinned = expect![[r#"Pinns { netns: Some("/var/run/netns/7c") }"#]];
        check("/usr/bin/pinns -d /var/run -f 7c -s net.core=1 --ipc --net --uts", pinned);
        check("pinns -d /var/run -f 7c --ipc --uts", expect!["Pinns { netns: None }"]);
    }

    #[test]
    fn oci_runtimes() {
        let runc = "runc --root /run/containerd/runc/k8s.io --log /run/b/log.json --log-format json --systemd-cgroup";
        check(&format!("{runc} create --bundle /run/b --pid-file /run/b/init.pid CT"), expect!["oci Create CT"]);
        check(&format!("{runc} start CT"), expect!["oci Start CT"]);
        check(&format!("{runc} delete --force CT"), expect!["oci Other CT"]);
        check(&format!("{runc} kill CT 9"), expect!["oci Other CT"]);
        check(&format!("{runc} exec --process /tmp/p --detach --pid-file /run/p CT"), expect!["oci Exec CT"]);
        check("/usr/bin/own-runtime --root=/run/own create -b /run/b CT", expect!["oci Create CT"]);
        check("crun --cgroup-manager cgroupfs start CT", expect!["oci Start CT"]);
        check("runc init", expect!["Init"]);
        check("runc features", expect!["Other"]);
        check("service start nginx", expect!["Other"]);
        check("runc", expect!["Other"]);
    }
}
