//! k8s-cri's types are the oracle: what they encode, the reader must give, and nothing that is secret.

use std::collections::HashMap;

use k8s_cri::{v1, v1alpha2};
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::cri::{Field, Fields, Value, schema};

/// What every secret of a sample contains.
const MARK: &str = "S3CR3T";

struct Read {
    fields: Fields,
    masked: Vec<u8>,
    malformed: bool,
    code: u32,
    message: String,
    service: String,
    method: String,
}

/// Reads `bytes`, the beginning of a message of `len` bytes, in runs of the lengths that `next` gives.
fn read(allow: &'static Allow, bytes: &[u8], len: usize, mut next: impl FnMut() -> usize) -> Read {
    let mut scanner = Scanner::new(allow, len as u64);
    let mut taken = Taken::new();
    let mut bits = vec![0; bytes.len()];
    let mut rest = Piece::new(bytes);
    while !rest.is_empty() {
        let piece = rest.take(next().max(1));
        scanner.feed(piece, &mut Mask::on(&mut bits), &mut taken);
    }
    let malformed = scanner.malformed();
    let masked = bytes.iter().zip(&bits).map(|(byte, kept)| byte & kept).collect();
    let Taken { fields, code, message, service, method, .. } = taken;
    Read { fields, masked, malformed, code, message, service, method }
}

fn whole(allow: &'static Allow, bytes: &[u8]) -> Read {
    read(allow, bytes, bytes.len(), || usize::MAX)
}

/// Checks what holds for every message, whatever it holds; gives its fields.
fn check(allow: &'static Allow, bytes: &[u8]) -> Read {
    let full = whole(allow, bytes);
    let again = whole(allow, &full.masked);
    assert_eq!(again.fields, full.fields, "the masked bytes give the same");
    assert_eq!(again.malformed, full.malformed);
    assert_eq!((&again.message, again.code), (&full.message, full.code));
    assert_eq!(again.masked, full.masked, "masking twice is masking once");
    for size in 1..=bytes.len().min(9) {
        let split = read(allow, bytes, bytes.len(), || size);
        assert_eq!(split.fields, full.fields, "runs of {size}");
        assert_eq!(split.masked, full.masked, "runs of {size}");
    }
    for end in 0..bytes.len() {
        let prefix = read(allow, &bytes[..end], bytes.len(), || usize::MAX);
        assert!(full.fields.0.starts_with(&prefix.fields.0), "a prefix of {end} gives nothing else");
        assert!(full.masked.starts_with(&prefix.masked), "a prefix of {end} keeps nothing else");
    }
    full
}

fn no_secret(read: &Read) {
    let kept = String::from_utf8_lossy(&read.masked);
    assert!(!kept.contains(MARK), "kept: {kept}");
    assert!(!format!("{:?}", read.fields).contains(MARK));
    assert!(!read.malformed);
}

#[derive(Debug, Clone)]
struct Sample {
    names: [String; 6],
    numbers: [u32; 4],
    secrets: Vec<String>,
}

fn samples() -> impl Strategy<Value = Sample> {
    let names = proptest::array::uniform6("[a-zA-Z0-9é/_.:-]{0,70}");
    let numbers = proptest::array::uniform4(prop_oneof![Just(0_u32), 0_u32..4, any::<u32>()]);
    let secrets = proptest::collection::vec("[ -~]{0,20}".prop_map(|s| format!("{MARK}{s}")), 1..5);
    (names, numbers, secrets).prop_map(|(names, numbers, secrets)| Sample { names, numbers, secrets })
}

impl Sample {
    fn secret_map(&self) -> HashMap<String, String> {
        self.secrets.iter().map(|s| (s.clone(), s.clone())).collect()
    }

    fn pod(&self) -> v1::PodSandboxMetadata {
        let [name, uid, namespace, ..] = self.names.clone();
        v1::PodSandboxMetadata { name, uid, namespace, attempt: self.numbers[0] }
    }

    fn pod_fields(&self) -> Vec<(Field, Value)> {
        let [name, uid, namespace, ..] = &self.names;
        let mut fields = vec![];
        text(&mut fields, Field::PodName, name);
        text(&mut fields, Field::PodUid, uid);
        text(&mut fields, Field::PodNamespace, namespace);
        number(&mut fields, Field::PodAttempt, self.numbers[0]);
        fields
    }

    fn sandbox_config(&self) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(self.pod()),
            hostname: self.secrets[0].clone(),
            labels: self.secret_map(),
            annotations: self.secret_map(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.names[3].clone(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: i32::try_from(self.numbers[1] % 4).unwrap(),
                        pid: i32::try_from(self.numbers[2] % 4).unwrap(),
                        ipc: i32::try_from(self.numbers[3] % 4).unwrap(),
                        target_id: self.secrets[0].clone(),
                        ..v1::NamespaceOption::default()
                    }),
                    privileged: true,
                    ..v1::LinuxSandboxSecurityContext::default()
                }),
                sysctls: self.secret_map(),
                ..v1::LinuxPodSandboxConfig::default()
            }),
            ..v1::PodSandboxConfig::default()
        }
    }
}

/// proto3 does not encode a default value.
fn text(fields: &mut Vec<(Field, Value)>, field: Field, value: &str) {
    if !value.is_empty() {
        fields.push((field, Value::Text(value.to_owned())));
    }
}

fn number(fields: &mut Vec<(Field, Value)>, field: Field, value: u32) {
    if value != 0 {
        fields.push((field, Value::Number(u64::from(value))));
    }
}

fn cri(method: &str) -> &'static Allow {
    let image = matches!(method, "PullImage" | "ImageStatus");
    schema::request(if image { "runtime.v1.ImageService" } else { "runtime.v1.RuntimeService" }, method)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn run_pod_sandbox(s in samples()) {
        let request = v1::RunPodSandboxRequest {
            config: Some(s.sandbox_config()),
            runtime_handler: s.names[4].clone(),
        };
        let bytes = request.encode_to_vec();
        let read = check(cri("RunPodSandbox"), &bytes);
        let mut expected = s.pod_fields();
        text(&mut expected, Field::CgroupParent, &s.names[3]);
        number(&mut expected, Field::NetworkMode, s.numbers[1] % 4);
        number(&mut expected, Field::PidMode, s.numbers[2] % 4);
        number(&mut expected, Field::IpcMode, s.numbers[3] % 4);
        text(&mut expected, Field::RuntimeHandler, &s.names[4]);
        prop_assert_eq!(&read.fields.0, &expected);
        no_secret(&read);
        // v1alpha2 has the same numbers.
        let older = v1alpha2::RunPodSandboxRequest::decode(bytes.as_slice()).unwrap();
        let older = older.encode_to_vec();
        let read = whole(schema::request("runtime.v1alpha2.RuntimeService", "RunPodSandbox"), &older);
        prop_assert_eq!(&read.fields.0, &expected);
    }

    #[test]
    fn create_container(s in samples()) {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: s.names[5].clone(),
            config: Some(v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata { name: s.names[4].clone(), attempt: s.numbers[1] }),
                image: Some(v1::ImageSpec {
                    image: s.names[3].clone(),
                    annotations: s.secret_map(),
                    ..v1::ImageSpec::default()
                }),
                command: s.secrets.clone(),
                args: s.secrets.clone(),
                working_dir: s.secrets[0].clone(),
                envs: s.secrets.iter().map(|v| v1::KeyValue { key: v.clone(), value: v.clone() }).collect(),
                labels: s.secret_map(),
                annotations: s.secret_map(),
                log_path: s.secrets[0].clone(),
                tty: true,
                ..v1::ContainerConfig::default()
            }),
            sandbox_config: Some(s.sandbox_config()),
        };
        let read = check(cri("CreateContainer"), &request.encode_to_vec());
        let mut expected = vec![];
        text(&mut expected, Field::SandboxId, &s.names[5]);
        text(&mut expected, Field::ContainerName, &s.names[4]);
        number(&mut expected, Field::ContainerAttempt, s.numbers[1]);
        text(&mut expected, Field::Image, &s.names[3]);
        expected.extend(s.pod_fields());
        prop_assert_eq!(&read.fields.0, &expected);
        no_secret(&read);
    }

    #[test]
    fn pull_image_and_exec(s in samples()) {
        let secret = s.secrets[0].clone();
        let request = v1::PullImageRequest {
            image: Some(v1::ImageSpec { image: s.names[0].clone(), ..v1::ImageSpec::default() }),
            auth: Some(v1::AuthConfig {
                username: secret.clone(),
                password: secret.clone(),
                auth: secret.clone(),
                server_address: secret.clone(),
                identity_token: secret.clone(),
                registry_token: secret.clone(),
            }),
            sandbox_config: None,
        };
        let read = check(cri("PullImage"), &request.encode_to_vec());
        prop_assert_eq!(read.fields.text(Field::Image).unwrap_or_default(), &s.names[0]);
        no_secret(&read);
        let request = v1::ExecSyncRequest { container_id: s.names[1].clone(), cmd: s.secrets.clone(), timeout: 7 };
        let read = check(cri("ExecSync"), &request.encode_to_vec());
        prop_assert_eq!(read.fields.text(Field::ContainerId).unwrap_or_default(), &s.names[1]);
        prop_assert_eq!(read.fields.number(Field::Timeout), Some(7));
        // Of the command no more than how long its words are.
        let words = s.secrets.iter().map(|word| (Field::ExecWord, Value::Number(word.len() as u64)));
        let more = read.fields.0.iter().filter(|(field, _)| *field == Field::ExecWord).cloned();
        prop_assert_eq!(more.collect::<Vec<_>>(), words.collect::<Vec<_>>());
        prop_assert!(read.fields.0.len() <= 2 + s.secrets.len());
        no_secret(&read);
        let reply = v1::ExecSyncResponse { stdout: secret.clone().into(), stderr: secret.into(), exit_code: -1 };
        let reply = reply.encode_to_vec();
        let read = check(schema::response("runtime.v1.RuntimeService", "ExecSync"), &reply);
        prop_assert_eq!(&read.fields.0, &[(Field::ExecExitCode, Value::Number(u64::MAX))]);
        no_secret(&read);
    }

    #[test]
    fn replies(s in samples()) {
        let service = "runtime.v1.RuntimeService";
        let reply = v1::ContainerStatusResponse {
            status: Some(v1::ContainerStatus {
                id: s.names[0].clone(),
                metadata: Some(v1::ContainerMetadata { name: s.names[1].clone(), attempt: s.numbers[0] }),
                state: 2,
                created_at: 1,
                exit_code: 137,
                image: Some(v1::ImageSpec { image: s.names[2].clone(), ..v1::ImageSpec::default() }),
                image_ref: s.names[3].clone(),
                reason: s.secrets[0].clone(),
                message: s.secrets[0].clone(),
                labels: s.secret_map(),
                annotations: s.secret_map(),
                ..v1::ContainerStatus::default()
            }),
            info: s.secret_map(),
        };
        let read = check(schema::response(service, "ContainerStatus"), &reply.encode_to_vec());
        prop_assert_eq!(read.fields.number(Field::ExitCode), Some(137));
        prop_assert_eq!(read.fields.number(Field::State), Some(2));
        prop_assert_eq!(read.fields.text(Field::ImageRef).unwrap_or_default(), &s.names[3]);
        no_secret(&read);
        let container = v1::Container {
            id: s.names[0].clone(),
            pod_sandbox_id: s.names[1].clone(),
            state: 1,
            labels: s.secret_map(),
            annotations: s.secret_map(),
            ..v1::Container::default()
        };
        let reply = v1::ListContainersResponse { containers: vec![container; 3] };
        let read = check(schema::response(service, "ListContainers"), &reply.encode_to_vec());
        prop_assert_eq!(read.fields.0.iter().filter(|(f, _)| *f == Field::State).count(), 3);
        no_secret(&read);
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..120), which in 0..METHODS.len()) {
        let (service, method) = METHODS[which];
        check(schema::request(service, method), &bytes);
        check(schema::response(service, method), &bytes);
        check(&schema::TTRPC_REQUEST, &bytes);
    }

    /// Bytes that look like protobuf more often than any bytes do.
    #[test]
    fn nearly_protobuf(s in samples(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let config = Some(s.sandbox_config());
        let mut bytes = v1::RunPodSandboxRequest { config, runtime_handler: String::new() }.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        check(cri("RunPodSandbox"), &bytes);
    }
}

const METHODS: [(&str, &str); 6] = [
    ("runtime.v1.RuntimeService", "RunPodSandbox"),
    ("runtime.v1.RuntimeService", "CreateContainer"),
    ("runtime.v1.RuntimeService", "StopContainer"),
    ("containerd.task.v2.Task", "Kill"),
    ("containerd.task.v2.Task", "State"),
    ("containerd.services.events.ttrpc.v1.Events", "Forward"),
];

/// One field: tag, length, content.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let len = u8::try_from(content.len()).expect("short");
    assert!(len < 128);
    [&[number << 3 | 2, len], content].concat()
}

/// Since 1.37 `KeyValue.value` is `bytes`: a reader of strings would give the whole message up.
#[test]
fn an_env_value_that_is_not_utf8() {
    let env = field(6, &[field(1, b"KEY"), field(2, b"S3CR3T\xff\xfe")].concat());
    let metadata = field(1, &field(1, b"app\xff"));
    let bytes = [field(1, b"sandbox"), field(2, &[metadata, env].concat())].concat();
    assert!(v1::CreateContainerRequest::decode(bytes.as_slice()).is_err());
    let read = check(cri("CreateContainer"), &bytes);
    assert_eq!(read.fields.text(Field::SandboxId), Some("sandbox"));
    assert_eq!(read.fields.text(Field::ContainerName), Some("app\u{fffd}"));
    no_secret(&read);
}

#[test]
fn what_breaks_the_encoding_ends_the_reading() {
    let good = field(1, b"sandbox");
    for (bad, why) in [
        (vec![0x00], "field 0"),
        (vec![0x0b], "a group"),
        (vec![0x0e], "wire type 6"),
        (vec![0x0a, 0x7f, 1], "longer than the message"),
        (vec![0x80; 6], "an endless tag"),
        ([vec![0x10], vec![0x80; 11]].concat(), "an endless varint"),
        (vec![0x09, 1, 2], "half a fixed64"),
        (vec![0x12, 0x02, 0x0a, 0x05, 1], "longer than its parent"),
    ] {
        let bytes = [good.clone(), bad.clone(), field(1, b"S3CR3T")].concat();
        let read = check(cri("CreateContainer"), &bytes);
        assert_eq!(read.fields.0.first(), Some(&(Field::SandboxId, Value::Text("sandbox".into()))), "{why}");
        let cut = [good.clone(), bad].concat();
        assert!(whole(cri("CreateContainer"), &cut).malformed, "{why}");
    }
}

#[test]
fn nothing_is_read_of_what_is_not_listed() {
    let request = v1::RunPodSandboxRequest::default();
    let bytes = [request.encode_to_vec(), field(1, &field(1, b"S3CR3T"))].concat();
    for (service, method) in
        [("containerd.services.containers.v1.Containers", "Get"), ("runtime.v1.RuntimeService", "Frobnicate"), ("", "")]
    {
        for allow in [schema::request(service, method), schema::response(service, method)] {
            let read = check(allow, &bytes);
            assert!(read.fields.0.is_empty());
            assert!(read.masked.iter().all(|b| *b == 0), "{service}/{method}");
        }
    }
}

#[test]
fn long_text_is_cut_and_a_long_message_takes_no_memory() {
    let mut allow = Scanner::new(cri("StartContainer"), 1 << 34);
    let mut taken = Taken::new();
    // Field 1 of 2^33 bytes, then field 1 again.
    allow.feed(Piece::new(&[0x0a, 0x80, 0x80, 0x80, 0x80, 0x20]), &mut Mask::off(), &mut taken);
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..1 << 13 {
        allow.feed(Piece::new(&chunk), &mut Mask::off(), &mut taken);
    }
    allow.feed(Piece::new(&field(1, b"id")), &mut Mask::off(), &mut taken);
    let lengths: Vec<usize> = taken
        .fields
        .0
        .iter()
        .filter_map(|(_, v)| match v {
            Value::Text(text) => Some(text.len()),
            Value::Number(_) => None,
        })
        .collect();
    assert_eq!(lengths, [MAX_TEXT, 2]);
    assert!(allow.text.capacity() <= 2 * (MAX_TEXT + 1));
}

#[test]
fn an_rpc_envelope() {
    let create = [field(1, b"task"), field(2, b"/bundle"), field(7, b"S3CR3T")].concat();
    let names = [field(1, b"containerd.task.v2.Task"), field(2, b"Create")].concat();
    let bytes = [names, field(3, &create), vec![0x20, 0x05], field(5, b"S3CR3T")].concat();
    let read = check(&schema::TTRPC_REQUEST, &bytes);
    assert_eq!((read.service.as_str(), read.method.as_str()), ("containerd.task.v2.Task", "Create"));
    assert_eq!(read.fields.text(Field::TaskId), Some("task"));
    assert_eq!(read.fields.text(Field::Bundle), Some("/bundle"));
    no_secret(&read);
    let exec = [field(1, b"task"), field(2, b"exec"), field(7, &field(2, b"S3CR3T"))].concat();
    let names = [field(1, b"containerd.task.v3.Task"), field(2, b"Exec")].concat();
    let read = check(&schema::TTRPC_REQUEST, &[names, field(3, &exec)].concat());
    assert_eq!(read.fields.text(Field::ExecId), Some("exec"));
    assert_eq!(read.fields.0.len(), 2);
    no_secret(&read);
    let status = [vec![0x08, 0x05], field(2, b"at https://u:S3CR3T@h/x?y=S3CR3T not found")].concat();
    let read = check(&schema::TTRPC_RESPONSE, &field(1, &status));
    assert_eq!((read.code, read.message.as_str()), (5, "at https://h/x not found"));
}

#[test]
fn an_event() {
    let exit = [field(1, b"task"), field(2, b"exec"), vec![0x18, 42, 0x20, 137, 1]].concat();
    let any = [field(1, b"containerd.events.TaskExit"), field(2, &exit)].concat();
    let envelope = [field(2, b"k8s.io"), field(3, b"/tasks/exit"), field(4, &any)].concat();
    let allow = schema::request("containerd.services.events.ttrpc.v1.Events", "Forward");
    let read = check(allow, &field(1, &envelope));
    assert_eq!(read.fields.text(Field::Topic), Some("/tasks/exit"));
    assert_eq!(read.fields.text(Field::ExecId), Some("exec"));
    assert_eq!(read.fields.number(Field::Pid), Some(42));
    assert_eq!(read.fields.number(Field::ExitStatus), Some(137));
    let any = [field(1, b"some.Other"), field(2, b"\x0a\x06S3CR3T")].concat();
    let read = check(allow, &field(1, &[field(3, b"/other"), field(4, &any)].concat()));
    assert_eq!(read.fields.0.len(), 1);
    no_secret(&read);
}
