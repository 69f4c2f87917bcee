//! Images without a registry: OCI image layouts in a tar, written here
//! (OCI image-spec, image-layout.md).

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// The sandbox image; a static pause is all that is in it.
pub const PAUSE_IMAGE: &str = "localhost/podlapse-pause:1";
/// The image of sample containers: busybox with a few of its applets.
pub const BUSYBOX_IMAGE: &str = "localhost/podlapse-busybox:1";

/// A static program that sleeps until it is ended.
static PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// The image of containers that cannot run: a program of no format, and a script whose interpreter is missing.
pub const BROKEN_IMAGE: &str = "localhost/podlapse-broken:1";

const APPLETS: [&str; 14] =
    ["cat", "echo", "env", "false", "id", "ip", "ls", "mkdir", "nc", "ps", "sh", "sleep", "true", "wget"];

/// Writes the sandbox image to `archive`.
pub fn write_pause(archive: &Path) -> Result<()> {
    let mut layer = Layer::new();
    layer.file("pause", PAUSE, 0o755)?;
    write(archive, PAUSE_IMAGE, layer, &json!({ "Entrypoint": ["/pause"] }))
}

/// Writes the image of sample containers to `archive`.
pub fn write_busybox(archive: &Path, busybox: &Path) -> Result<()> {
    let program = std::fs::read(busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let mut layer = Layer::new();
    for (dir, mode) in
        [("bin", 0o755), ("dev", 0o755), ("etc", 0o755), ("proc", 0o755), ("sys", 0o755), ("tmp", 0o1777)]
    {
        layer.dir(dir, mode)?;
    }
    layer.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n", 0o644)?;
    layer.file("bin/busybox", &program, 0o755)?;
    for applet in APPLETS {
        layer.link(&format!("bin/{applet}"), "busybox")?;
    }
    let config = json!({ "Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "2147483647"] });
    write(archive, BUSYBOX_IMAGE, layer, &config)
}

/// Writes the image of containers that cannot run to `archive`.
pub fn write_broken(archive: &Path) -> Result<()> {
    let mut layer = Layer::new();
    for dir in ["dev", "proc", "sys"] {
        layer.dir(dir, 0o755)?;
    }
    layer.file("garbage", b"no program\n", 0o755)?;
    layer.file("orphan", b"#!/no/such/interpreter\n", 0o755)?;
    layer.file("plain", b"#!/bin/sh\n", 0o644)?;
    write(archive, BROKEN_IMAGE, layer, &json!({ "Entrypoint": ["/garbage"] }))
}

/// Writes an image to `archive` whose one file holds so many bytes of no pattern; another `seed`, other bytes.
pub fn write_random(archive: &Path, name: &str, bytes: usize, seed: u64) -> Result<()> {
    // xorshift64: what matters is that nothing compresses it.
    let mut state = seed | 1;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some(state.to_le_bytes())
    };
    let data: Vec<u8> = std::iter::from_fn(word).flatten().take(bytes).collect();
    let mut layer = Layer::new();
    layer.file("data", &data, 0o644)?;
    write(archive, name, layer, &json!({ "Cmd": ["/data"] }))
}

fn write(archive: &Path, name: &str, layer: Layer, config: &Value) -> Result<()> {
    let file = File::create(archive).with_context(|| format!("cannot write image {}", archive.display()))?;
    let mut tar = Layer { tar: Builder::new(file) };
    let layer = layer.tar.into_inner()?;
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = serde_json::to_vec(&config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["annotations"] = json!({ "io.containerd.image.name": name });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });

    tar.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    tar.file("index.json", &serde_json::to_vec(&index)?, 0o644)?;
    for blob in [&layer, &config, &manifest] {
        tar.file(&format!("blobs/{}", digest(blob).replace(':', "/")), blob, 0o644)?;
    }
    tar.tar.into_inner()?.flush()?;
    Ok(())
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(blob), "size": blob.len() })
}

fn digest(blob: &[u8]) -> String {
    let hex: String = Sha256::digest(blob).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A tar in the making.
struct Layer<W: Write = Vec<u8>> {
    tar: Builder<W>,
}

impl Layer {
    fn new() -> Self {
        Self { tar: Builder::new(Vec::new()) }
    }
}

impl<W: Write> Layer<W> {
    fn file(&mut self, path: &str, data: &[u8], mode: u32) -> Result<()> {
        let mut header = header(EntryType::Regular, mode, data.len() as u64);
        Ok(self.tar.append_data(&mut header, path, data)?)
    }

    fn dir(&mut self, path: &str, mode: u32) -> Result<()> {
        let mut header = header(EntryType::Directory, mode, 0);
        Ok(self.tar.append_data(&mut header, path, std::io::empty())?)
    }

    fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        Ok(self.tar.append_link(&mut header, path, target)?)
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}
