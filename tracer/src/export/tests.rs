//! The exports' known answers: the JSON contract against its schema, the waterfall at several widths.

use expect_test::{Expect, expect};
use serde_json::Value;

use super::samples::{complete, failed, hostile, process, span};
use super::*;
use crate::trace::Trace;

fn json(trace: &Trace) -> String {
    let mut out = Vec::new();
    write_json(&mut out, trace).unwrap();
    String::from_utf8(out).unwrap()
}

fn tree(trace: &Trace, width: usize, charset: Charset, colour: bool) -> String {
    let mut out = Vec::new();
    write_tree(&mut out, trace, &Tree { width, charset, colour, min_ns: 0 }).unwrap();
    String::from_utf8(out).unwrap()
}

/// In the tests a field that the schema does not know is an error, too.
pub(super) fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.values_mut().for_each(close);
            if object.contains_key("properties") {
                object.insert("additionalProperties".into(), false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

#[test]
fn json_keeps_its_contract() {
    let mut schema = serde_json::from_str(include_str!("../../../docs/trace-v1.schema.json")).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    close(&mut schema);
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for trace in [complete(), failed(), hostile()] {
        let line = json(&trace);
        assert_eq!(line, json(&trace.clone()), "the same trace gives the same bytes");
        assert_eq!(line.matches('\n').count(), 1, "one line");
        let value: Value = serde_json::from_str(&line).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert_eq!(errors, [""; 0]);
    }
    let foreign = serde_json::json!({"schema": "podlapse.trace/v2"});
    assert!(!validator.is_valid(&foreign));
}

#[test]
fn json_of_a_complete_start() {
    let value: Value = serde_json::from_str(&json(&complete())).unwrap();
    let check = |pointer: &str, want: Value| assert_eq!(value.pointer(pointer), Some(&want), "{pointer}");
    check("/schema", "podlapse.trace/v1".into());
    check("/outcome", "complete".into());
    check("/start", serde_json::json!({"time": "2026-01-01T00:00:00.000000001Z", "monotonic_ns": "81234567890123"}));
    check("/spans/0/call/code", "OK".into());
    check("/spans/0/call/method_source", "literal".into());
    check("/spans/3/process/args", serde_json::json!(["bridge"]));
    check("/containers/0/exec", serde_json::json!({"path": "/bin/sleep", "at_ns": 635_000_000}));
    check("/containers/0/cgroup/limits", serde_json::json!({"cpu.max": "50000 100000"}));
    check(
        "/sandbox/namespaces",
        serde_json::json!({"net": 4_026_532_201u32, "ipc": 13, "uts": 14, "pid": 15, "mnt": 11}),
    );
    assert_eq!(value.pointer("/pod/ip"), None, "unknown is absent");
    assert_eq!(value.pointer("/verdict"), None);
}

#[test]
fn json_of_what_is_hardly_known() {
    let value: Value = serde_json::from_str(&json(&hostile())).unwrap();
    assert_eq!(value.pointer("/spans/0/end_ns"), None, "an open span has no end");
    assert_eq!(value.pointer("/spans/1/call"), Some(&serde_json::json!({"code": "99", "client": "grpc-go/1.72.1"})));
    assert_eq!(value["start"], serde_json::json!({"monotonic_ns": "1"}));
    assert_eq!(value["sandbox"], serde_json::json!({}));
    assert_eq!(value["containers"], serde_json::json!([{"kind": "unknown"}]));
}

fn check(trace: &Trace, width: usize, charset: Charset, want: Expect) {
    let got = tree(trace, width, charset, false);
    for line in got.lines() {
        use unicode_width::UnicodeWidthStr;
        assert!(
            line.width() <= width || line.starts_with("note") || !line.contains(' '),
            "wider than {width}: {line:?}"
        );
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    want.assert_eq(&got);
}

#[test]
fn tree_complete_60() {
    check(
        &complete(),
        60,
        Charset::Ascii,
        expect![[r#"
            pod default/web-0  uid 7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55
            node worker-1  containerd 1.7.27  complete
                             0         640.0 ms
            * RunPodSandbox  ############         412.0 ms  64.4% OK
            *  netns         #                    6.000 ms   0.9%
            *  cni           ######               178.0 ms  27.8%
            *   bridge       #####                161.0 ms  25.2% exit 0
                 host-local  --                   13.00 ms   2.0% exit 0
                portmap          --               17.00 ms   2.7% exit 0
            * CreateCon~iner            ###       55.00 ms   8.6% OK
            * StartContainer              #####   168.0 ms  26.3% OK
            *  exec /bi~leep                  |       0 ns   0.0%
            total 640.0 ms  named 64.4%  lost 0  probes tracepoint
        "#]],
    );
}

#[test]
fn tree_complete_80() {
    check(
        &complete(),
        80,
        Charset::Unicode,
        expect![[r#"
            pod default/web-0  uid 7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55  node worker-1
            containerd 1.7.27  complete
                                0                          640.0 ms
            ● RunPodSandbox     ███████████████████████               412.0 ms  64.4% OK
            ●   netns           █                                     6.000 ms   0.9%
            ●   cni             ███████████                           178.0 ms  27.8%
            ●     bridge        ██████████                            161.0 ms  25.2% exit 0
                    host-local   ▒▒                                   13.00 ms   2.0% exit 0
                  portmap                ▒▒                           17.00 ms   2.7% exit 0
            ● CreateContainer                         ████            55.00 ms   8.6% OK
            ● StartContainer                             ██████████   168.0 ms  26.3% OK
            ●   exec /bin/sleep                                   │       0 ns   0.0%
            total 640.0 ms  named 64.4%  lost 0  probes tracepoint
        "#]],
    );
}

#[test]
fn tree_complete_120() {
    check(
        &complete(),
        120,
        Charset::Ascii,
        expect![[r#"
            pod default/web-0  uid 7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55  node worker-1  containerd 1.7.27  complete
                                0                                                          640.0 ms
            * RunPodSandbox     ############################################                          412.0 ms  64.4% OK
            *   netns           #                                                                     6.000 ms   0.9%
            *   cni             ####################                                                  178.0 ms  27.8%
            *     bridge        ##################                                                    161.0 ms  25.2% pid 901 exit 0
                    host-local     --                                                                 13.00 ms   2.0% pid 907 exit 0
                  portmap                        ---                                                  17.00 ms   2.7% pid 911 exit 0
            * CreateContainer                                              #######                    55.00 ms   8.6% OK
            * StartContainer                                                     ##################   168.0 ms  26.3% OK
            *   exec /bin/sleep                                                                   |       0 ns   0.0%
            total 640.0 ms  named 64.4%  lost 0  probes tracepoint
        "#]],
    );
}

/// A sibling that began first but soon gave way is not marked; where the path goes is seen in its bar.
#[test]
fn tree_concurrent_80() {
    let mut trace = complete();
    let mut loopback = process(span(20, 3, "sandbox.cni.loopback", "loopback", 12, Some(160)), 903, Some(0));
    loopback.path_ns = Some((12_000_000, 100_000_000));
    trace.spans[3].path_ns = Some((9_000_000, 12_000_000));
    trace.spans[4].path_ns = Some((31_000_000, 37_000_000));
    trace.spans[5].path_ns = Some((100_000_000, 187_000_000));
    trace.spans[5].start_ns = 100_000_000;
    trace.spans.push(loopback);
    check(
        &trace,
        80,
        Charset::Ascii,
        expect![[r#"
        pod default/web-0  uid 7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55  node worker-1
        containerd 1.7.27  complete
                            0                          640.0 ms
        * RunPodSandbox     #######################               412.0 ms  64.4% OK
        *   netns           #                                     6.000 ms   0.9%
        *   cni             ###########                           178.0 ms  27.8%
              bridge        #---------                            161.0 ms  25.2% exit 0
                host-local   #-                                   13.00 ms   2.0% exit 0
        *     loopback      #####----                             148.0 ms  23.1% exit 0
        *     portmap            ######                           87.00 ms  13.6% exit 0
        * CreateContainer                         ####            55.00 ms   8.6% OK
        * StartContainer                             ##########   168.0 ms  26.3% OK
        *   exec /bin/sleep                                   |       0 ns   0.0%
        total 640.0 ms  named 64.4%  lost 0  probes tracepoint
    "#]],
    );
}

#[test]
fn tree_failed_80() {
    check(
        &failed(),
        80,
        Charset::Ascii,
        expect![[r#"
            pod default/web-0  uid 7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55  attempt 2
            node worker-1  containerd 1.7.27  failed
                            0                             640.0 ms
            * RunPodSandbox ######################################   640.0 ms 100.0% UNKNOWN
                ! UNKNOWN (2): failed to setup network for sandbox "abab": plugin
                type="bridge" name="podnet" failed (add): failed to allocate for range 0:
                no IP addresses available in range set: 10.88.0.1-10.88.0.254
            *   cni          ###################################     580.0 ms  90.6%
            *     bridge     ###################################     580.0 ms  90.6% exit 1
                    ! /opt/cni/bin/bridge (pid 901): exit status 1
            failed in sandbox.cni.bridge: cni_failed: bridge ended with exit status 1
            culprit: bridge (pid 901)
            why: bridge (pid 901) exited with 1; RunPodSandbox ended with gRPC code 2
            follows from trace: eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee
            next: Look at the addresses.
            see: kubelet shows FailedCreatePodSandBox; podlapse explain cni_failed
            node: cri_list_slow, since 12.00 s before the start began, over by now:
            ListContainers is answered within 4.2 ms, after 12.1 s; the slowest took 12.0
            s; podlapse explain cri_list_slow
            total 640.0 ms  named 64.4%  lost 0  probes tracepoint
        "#]],
    );
}

#[test]
fn tree_failed_120() {
    check(
        &failed(),
        120,
        Charset::Unicode,
        expect![[r#"
            pod default/web-0  uid 7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55  attempt 2  node worker-1  containerd 1.7.27  failed
                            0                                                              640.0 ms
            ● RunPodSandbox ███████████████████████████████████████████████████████████████████████   640.0 ms 100.0% UNKNOWN
                ! UNKNOWN (2): failed to setup network for sandbox "abab": plugin type="bridge" name="podnet" failed (add): failed
                to allocate for range 0: no IP addresses available in range set: 10.88.0.1-10.88.0.254
            ●   cni           █████████████████████████████████████████████████████████████████       580.0 ms  90.6%
            ●     bridge      █████████████████████████████████████████████████████████████████       580.0 ms  90.6% pid 901 exit 1
                    ! /opt/cni/bin/bridge (pid 901): exit status 1
            failed in sandbox.cni.bridge: cni_failed: bridge ended with exit status 1
            culprit: bridge (pid 901)
            why: bridge (pid 901) exited with 1; RunPodSandbox ended with gRPC code 2
            follows from trace: eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee
            next: Look at the addresses.
            see: kubelet shows FailedCreatePodSandBox; podlapse explain cni_failed
            node: cri_list_slow, since 12.00 s before the start began, over by now: ListContainers is answered within 4.2 ms, after
            12.1 s; the slowest took 12.0 s; podlapse explain cri_list_slow
            total 640.0 ms  named 64.4%  lost 0  probes tracepoint
        "#]],
    );
}

#[test]
fn tree_hostile_60() {
    check(
        &hostile(),
        60,
        Charset::Ascii,
        expect![[r#"
            pod ?/evil\u{1b}[31m\npod  in_progress
                            0         300.0 ms
            * RunPodSandbox #################>   300.0 ms 100.0% open
            *  sandbox      #                    1.000 ms   0.3% 99
                 ! 99 (99): no message
               cni          ----------------->   290.0 ms  96.7% open
                a-plugi~nds  -                   1.000 ms   0.3% SIGKILL
                  ! /opt/cni/bin/a-plugin-with-a-very-long-name-that-nev
                  er-ends (pid 9): killed by SIGKILL
                runc create                  >   1.000 ms   0.3% open
                 exec \~dc}                  |       0 ns   0.0% ENOENT
                   ! /no\u{202e}pe (pid 77): ENOENT (2): No such file
                   or directory
              span wit~rent ------------------    9.000 s 100.0%
            waits for 0.2 s in sandbox.oci.create: runc\u{1b}[2J (pid
            78) has not ended; runc:[2:INIT] (pid 79, 12.3 s old) waits
            uninterruptibly in flock (flock_lock_inode_wait); the last
            sign is 0.0 s old: setns by pid 79
            note: a gap\u{1b}[2J in the CRI connection
            so far 300.0 ms  named 0.0%  lost 12  undecoded bytes 4096
            inferred methods 1  exec tracepoint  socket trampoline
        "#]],
    );
}

#[test]
fn tree_hostile_120() {
    check(
        &hostile(),
        120,
        Charset::Unicode,
        expect![[r#"
            pod ?/evil\u{1b}[31m\npod  in_progress
                                                     0                                      300.0 ms
            ● RunPodSandbox                          ██████████████████████████████████████████████▶   300.0 ms 100.0% open
            ●   sandbox                              █                                                 1.000 ms   0.3% 99
                  ! 99 (99): no message
                cni                                   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▶   290.0 ms  96.7% open
                  a-plugin-with-a-very-l…-never-ends    ▒                                              1.000 ms   0.3% pid 9 SIGKILL
                    ! /opt/cni/bin/a-plugin-with-a-very-long-name-that-never-ends (pid 9): killed by SIGKILL
                  runc create                                                                      ▶   1.000 ms   0.3% open
                    exec \u{1b}]0;owned\u…/näme-网络                                               │       0 ns   0.0% pid 77 ENOENT
                      ! /no\u{202e}pe (pid 77): ENOENT (2): No such file or directory
              span without its parent                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒    9.000 s 100.0%
            waits for 0.2 s in sandbox.oci.create: runc\u{1b}[2J (pid 78) has not ended; runc:[2:INIT] (pid 79, 12.3 s old) waits
            uninterruptibly in flock (flock_lock_inode_wait); the last sign is 0.0 s old: setns by pid 79
            note: a gap\u{1b}[2J in the CRI connection
            so far 300.0 ms  named 0.0%  lost 12  undecoded bytes 4096  inferred methods 1  exec tracepoint  socket trampoline
        "#]],
    );
}

#[test]
fn any_width_fits_and_never_panics() {
    for width in (0..300).chain([65_535, 65_536, 100_000, usize::MAX]) {
        for trace in [complete(), failed(), hostile()] {
            for charset in [Charset::Ascii, Charset::Unicode] {
                tree(&trace, width, charset, false);
            }
        }
    }
    let mut nothing = hostile();
    nothing.spans.clear();
    nothing.total_ns = 0;
    tree(&nothing, 80, Charset::Ascii, true);
}

#[test]
fn colour_only_when_asked() {
    let coloured = tree(&failed(), 80, Charset::Unicode, true);
    assert!(coloured.contains("\x1b[1m\x1b[31m"), "failures are red");
    assert_eq!(
        anstream::adapter::strip_str(&coloured).to_string().lines().next(),
        tree(&failed(), 80, Charset::Unicode, false).lines().next()
    );
}

/// Of what is short, what failed stays, and so do points and the stages above what stays; how many are hidden is said.
#[test]
fn without_what_is_short() {
    let shown = |spans: Vec<crate::trace::Span>, min_ms: u64| {
        let trace = Trace { spans, ..complete() };
        let tree = Tree { width: 80, charset: Charset::Ascii, colour: false, min_ns: min_ms * 1_000_000 };
        let mut out = Vec::new();
        write_tree(&mut out, &trace, &tree).unwrap();
        String::from_utf8(out).unwrap()
    };
    let spans = vec![
        span(1, 0, "sandbox", "long", 0, Some(100)),
        span(2, 1, "sandbox.netns", "short", 0, Some(5)),
        span(3, 0, "image.pull", "short-above", 100, Some(109)),
        process(span(4, 3, "sandbox.cni", "short-and-failed", 100, Some(101)), 7, Some(1)),
        span(5, 3, "sandbox.cni", "short-too", 101, Some(102)),
        span(6, 0, "container.exec", "point", 110, Some(110)),
        span(7, 0, "container.start", "open", 110, None),
    ];
    let names = ["long", "short ", "short-above", "short-and-failed", "short-too", "point", "open"];
    let of = |text: &str| names.iter().filter(|name| text.contains(**name)).copied().collect::<Vec<_>>();
    let all = shown(spans.clone(), 0);
    assert_eq!(of(&all), names);
    assert!(!all.contains("not shown"));
    let some = shown(spans, 10);
    assert_eq!(of(&some), ["long", "short-above", "short-and-failed", "point", "open"]);
    assert!(some.contains("2 stages shorter than 10.00 ms not shown"), "{some}");
}
