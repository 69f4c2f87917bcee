//! Member offsets of the running kernel, from its BTF. Pure: bytes in, offsets out.
//!
//! btfparse reads it. It finds types by name alone, be they a struct or a function (`signal`, `file`, `pid` are both),
//! so the ids of the structs and typedefs are noted here. It keeps every type, with its names: for the 127 000 of a
//! 6.18 kernel that is 140 ms of CPU and 60 MB, once at attach, given back before the first record.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use btfparse::{Error, ErrorKind, Integer32Value, Offset, Readable, TypeInformation, TypeVariant};
use tracer_ebpf::shared::offset::MEMBERS;

/// Functions that trampolines are put on.
pub(crate) const FUNCTIONS: [&str; 3] = ["unix_stream_recvmsg", "unix_stream_sendmsg", "unix_release"];

/// A kernel's types.
pub(crate) struct Btf {
    types: TypeInformation,
    /// Structs that have members, by name: those that podlapse reads.
    structs: HashMap<String, u32>,
    /// Prototypes of the raw tracepoints, by name (`btf_trace_…`).
    tracepoints: HashMap<String, u32>,
    /// Prototypes of functions, by name: those of [`FUNCTIONS`].
    functions: HashMap<String, u32>,
    /// Values of `enum iter_type`.
    iter_types: HashMap<String, u32>,
}

impl Btf {
    /// Reads a BTF section.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(data: Vec<u8>) -> Result<Btf, String> {
        let types = TypeInformation::new(&Section(data)).map_err(|error| error.message().to_owned())?;
        let (mut structs, mut tracepoints) = (HashMap::new(), HashMap::new());
        let (mut functions, mut iter_types) = (HashMap::new(), HashMap::new());
        for (id, variant) in types.get() {
            match variant {
                TypeVariant::Struct(it) if !it.member_list().is_empty() => {
                    if let Some(name) = it.name().as_ref().filter(|name| MEMBERS.iter().any(|(of, _)| of == name)) {
                        structs.entry(name.clone()).or_insert(*id);
                    }
                }
                TypeVariant::Typedef(it) => {
                    if let Some(name) = it.name().as_ref().and_then(|name| name.strip_prefix("btf_trace_")) {
                        tracepoints.entry(name.to_owned()).or_insert(*it.tid());
                    }
                }
                TypeVariant::Func(it) => {
                    if let Some(name) = it.name().as_ref().filter(|name| FUNCTIONS.contains(&name.as_str())) {
                        functions.entry(name.clone()).or_insert(*it.prototype_tid());
                    }
                }
                TypeVariant::Enum(it) if it.name().as_deref() == Some("iter_type") => {
                    let values = it.named_value_list().iter().filter_map(|it| match it.value {
                        Integer32Value::Unsigned(value) => Some((it.name.clone(), value)),
                        Integer32Value::Signed(value) => {
                            u32::try_from(value).ok().map(|value| (it.name.clone(), value))
                        }
                    });
                    iter_types.extend(values);
                }
                _ => {}
            }
        }
        Ok(Btf { types, structs, tracepoints, functions, iter_types })
    }

    /// A value of `enum iter_type`, by name.
    pub(crate) fn iter_type(&self, name: &str) -> Option<u32> {
        self.iter_types.get(name).copied()
    }

    /// Offset in bytes of a member of [`MEMBERS`]' types, by path (`ns.inum`); an empty path gives the size of the type.
    pub(crate) fn offset(&self, of: &str, path: &str) -> Option<u32> {
        let id = *self.structs.get(of)?;
        if path.is_empty() {
            return self.types.size_of(id).ok().and_then(|size| size.try_into().ok());
        }
        match self.types.offset_of(id, path).ok()? {
            (_, Offset::ByteOffset(offset)) => Some(offset),
            (_, Offset::BitOffsetAndSize(..)) => None,
        }
    }

    /// The structs that the arguments of a raw tracepoint point to, after the one for the kernel's own use; an empty
    /// name for any other argument. None: there is no such tracepoint.
    pub(crate) fn tracepoint(&self, name: &str) -> Option<Vec<String>> {
        let TypeVariant::Ptr(pointer) = self.bare(*self.tracepoints.get(name)?)? else { return None };
        self.arguments(*pointer.tid(), 1)
    }

    /// The same for a function of [`FUNCTIONS`], whose arguments are all its own.
    pub(crate) fn function(&self, name: &str) -> Option<Vec<String>> {
        self.arguments(*self.functions.get(name)?, 0)
    }

    fn arguments(&self, proto: u32, skip: usize) -> Option<Vec<String>> {
        let TypeVariant::FuncProto(proto) = self.bare(proto)? else { return None };
        let pointee = |id| match self.bare(id)? {
            TypeVariant::Ptr(pointer) => match self.bare(*pointer.tid())? {
                TypeVariant::Struct(it) => it.name().clone(),
                _ => None,
            },
            _ => None,
        };
        Some(proto.parameter_list().iter().skip(skip).map(|it| pointee(it.tid()).unwrap_or_default()).collect())
    }

    /// The type behind typedefs, qualifiers and tags.
    fn bare(&self, mut id: u32) -> Option<&TypeVariant> {
        loop {
            let variant = self.types.get().get(&id)?;
            id = match variant {
                TypeVariant::Typedef(it) => *it.tid(),
                TypeVariant::Const(it) => *it.tid(),
                TypeVariant::Volatile(it) => *it.tid(),
                TypeVariant::Restrict(it) => *it.tid(),
                TypeVariant::TypeTag(it) => *it.tid(),
                _ => return Some(variant),
            };
        }
    }
}

struct Section(Vec<u8>);

impl Readable for Section {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> btfparse::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|from| self.0.get(from..)?.get(..buffer.len()));
        let from = from.ok_or_else(|| Error::new(ErrorKind::EOF, "it is too short"))?;
        buffer.copy_from_slice(from);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Btf;

    const STRINGS: &[u8] = b"\0task_struct\0tgid\0pid\0level\0btf_trace_t\0";

    /// `struct pid { int level @64 }`, `struct task_struct { int tgid @0; struct { struct pid pid @32 } @64 }`, a function
    /// `pid`, and `typedef void (*btf_trace_t)(void *, struct task_struct *)`.
    fn sample() -> Vec<u8> {
        let types: &[&[u32]] = &[
            &[0, 1 << 24, 4, 32],                      // 1: int
            &[18, 4 << 24 | 1, 16, 22, 1, 64],         // 2: pid
            &[0, 4 << 24 | 1, 16, 18, 2, 32],          // 3: anonymous
            &[1, 4 << 24 | 2, 24, 13, 1, 0, 0, 3, 64], // 4: task_struct
            &[0, 2 << 24, 4],                          // 5: task_struct *
            &[0, 13 << 24 | 2, 0, 0, 7, 0, 5],         // 6: proto
            &[0, 2 << 24, 0],                          // 7: void *
            &[0, 2 << 24, 6],                          // 8: proto *
            &[28, 8 << 24, 8],                         // 9: typedef
            &[18, 12 << 24, 6],                        // 10: function pid
        ];
        let types: Vec<u8> = types.concat().iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut data = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types.len() as u32, types.len() as u32, STRINGS.len() as u32] {
            data.extend(word.to_le_bytes());
        }
        data.extend(types);
        data.extend(STRINGS);
        data
    }

    #[test]
    fn members_are_found_through_anonymous_structs() {
        let btf = Btf::parse(sample()).unwrap();
        assert_eq!(btf.offset("task_struct", "tgid"), Some(0));
        assert_eq!(btf.offset("task_struct", "pid"), Some(12));
        assert_eq!(btf.offset("task_struct", "pid.level"), Some(20));
        assert_eq!(btf.offset("task_struct", "missing"), None);
        assert_eq!(btf.offset("pid", "level"), Some(8));
        assert_eq!(btf.offset("pid", ""), Some(16));
        assert_eq!(btf.offset("missing", "tgid"), None);
        assert_eq!(btf.tracepoint("t"), Some(vec!["task_struct".to_owned()]));
        assert_eq!(btf.tracepoint("missing"), None);
    }

    #[test]
    fn truncated_sections_are_errors() {
        let whole = sample();
        for len in 0..whole.len() {
            assert!(Btf::parse(whole[..len].to_vec()).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn the_running_kernel_has_a_task_struct() {
        let path = "/sys/kernel/btf/vmlinux";
        let Ok(data) = std::fs::read(path) else {
            println!("skipped: {path} is not readable");
            return;
        };
        let btf = Btf::parse(data).unwrap();
        for (of, member) in tracer_ebpf::shared::offset::MEMBERS {
            assert!(btf.offset(of, member).is_some(), "{of}.{member}");
        }
        for name in super::FUNCTIONS {
            assert_eq!(btf.function(name).and_then(|it| it.first().cloned()).as_deref(), Some("socket"), "{name}");
        }
        assert!(btf.iter_type("ITER_IOVEC").is_some());
        assert_eq!(btf.iter_type("ITER_MISSING"), None);
    }
}
