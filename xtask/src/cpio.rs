//! A cpio archive in the `newc` format, as the kernel takes an initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive that grows in memory.
#[derive(Debug, Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    /// A folder; its parent must come first.
    pub(crate) fn dir(&mut self, name: &str) {
        self.entry(name, 0o040_755, &[]);
    }

    /// A program.
    pub(crate) fn file(&mut self, name: &str, data: &[u8]) {
        self.entry(name, 0o100_755, data);
    }

    /// The archive with its trailer.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(data.len()).expect("an initramfs file is smaller than 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a file name is short");
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let mut cpio = Cpio::default();
        cpio.file("init", b"hello");
        let bytes = cpio.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[14..22], b"000081ed");
        assert_eq!(&bytes[54..62], b"00000005");
        // 110 bytes of header and "init\0" end at 115, the data begins at 116.
        assert_eq!(&bytes[110..121], b"init\0\0hello");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
