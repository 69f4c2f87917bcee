//! Member offsets of the running kernel, from its BTF (kernel: `Documentation/bpf/btf.rst`).
//!
//! Pure: bytes in, offsets out. One pass notes where each type starts; members are looked up by name afterwards,
//! through anonymous structs and unions. aya keeps its own reader private, and btfparse builds an owned tree of every
//! type (and finds types by name alone, be they a struct or a function), which costs more than the whole attach.

#![forbid(unsafe_code)]

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const FUNC_PROTO: u32 = 13;
const TYPE_HEADER: usize = 12;

/// A kernel's types.
#[derive(Debug)]
pub(crate) struct Btf {
    data: Vec<u8>,
    strings: usize,
    /// Where each type starts, by id; id 0 is `void`.
    types: Vec<usize>,
    /// Structs and unions that have members, by name.
    structs: HashMap<Vec<u8>, u32>,
    /// Typedefs, by name.
    typedefs: HashMap<Vec<u8>, u32>,
}

impl Btf {
    /// Reads a BTF section.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(data: Vec<u8>) -> Result<Btf, &'static str> {
        let short = "it is too short";
        if data.get(..2).ok_or(short)? != MAGIC.to_le_bytes() {
            return Err("it does not start with the BTF magic number");
        }
        let header = word(&data, 4).ok_or(short)? as usize;
        let [type_off, type_len, str_off, str_len] = [8, 12, 16, 20].map(|at| word(&data, at).map(|w| w as usize));
        let start = header + type_off.ok_or(short)?;
        let end = start + type_len.ok_or(short)?;
        let strings = header + str_off.ok_or(short)?;
        if data.len() < end || data.len() < strings + str_len.ok_or(short)? {
            return Err(short);
        }
        let mut btf = Btf { data, strings, types: vec![0], structs: HashMap::new(), typedefs: HashMap::new() };
        let mut at = start;
        while at < end {
            let info = word(&btf.data, at + 4).ok_or(short)?;
            let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let extra = match kind {
                1 | 14 | 17 => 4,
                ARRAY => 12,
                STRUCT | UNION | 15 | 19 => vlen * 12,
                6 | FUNC_PROTO => vlen * 8,
                PTR | 7..=12 | 16 | 18 => 0,
                _ => return Err("it holds a kind of type that podlapse does not know"),
            };
            let id = btf.types.len() as u32;
            let name = btf.name(word(&btf.data, at).ok_or(short)?).to_vec();
            if !name.is_empty() {
                match kind {
                    STRUCT | UNION if vlen > 0 => _ = btf.structs.entry(name).or_insert(id),
                    TYPEDEF => _ = btf.typedefs.entry(name).or_insert(id),
                    _ => {}
                }
            }
            btf.types.push(at);
            at += TYPE_HEADER + extra;
        }
        Ok(btf)
    }

    /// Offset in bytes of a member, by path (`ns.inum`); an empty path gives the size of the type.
    pub(crate) fn offset(&self, of: &str, path: &str) -> Option<u32> {
        let mut id = *self.structs.get(of.as_bytes())?;
        if path.is_empty() {
            return word(&self.data, self.types[id as usize] + 8);
        }
        let mut bits = 0;
        for name in path.split('.') {
            let (offset, member) = self.member(self.bare(id), name.as_bytes(), 0)?;
            bits += offset;
            id = member;
        }
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// The structs that the arguments of a raw tracepoint point to, after the one for the kernel's own use; an empty
    /// name for any other argument. None: there is no such tracepoint.
    pub(crate) fn tracepoint(&self, name: &str) -> Option<Vec<String>> {
        let typedef = *self.typedefs.get(format!("btf_trace_{name}").as_bytes())?;
        let pointer = self.target(typedef)?;
        let proto = self.target(pointer)?;
        if self.kind(proto) != FUNC_PROTO {
            return None;
        }
        let at = self.types[proto as usize];
        let count = (word(&self.data, at + 4)? & 0xffff) as usize;
        let mut names = Vec::new();
        for index in 1..count {
            let argument = self.bare(word(&self.data, at + TYPE_HEADER + index * 8 + 4)?);
            let mut name = String::new();
            if self.kind(argument) == PTR {
                let to = self.bare(self.target(argument)?);
                if self.kind(to) == STRUCT {
                    name = String::from_utf8_lossy(self.name(word(&self.data, self.types[to as usize])?)).into_owned();
                }
            }
            names.push(name);
        }
        Some(names)
    }

    /// Offset in bits and type of a member, also of an anonymous member's.
    fn member(&self, id: u32, name: &[u8], depth: u32) -> Option<(u32, u32)> {
        if !matches!(self.kind(id), STRUCT | UNION) || depth > 8 {
            return None;
        }
        let at = *self.types.get(id as usize)?;
        let info = word(&self.data, at + 4)?;
        let members = (0..(info & 0xffff) as usize).map(|index| at + TYPE_HEADER + index * 12);
        let mut anonymous = Vec::new();
        for at in members {
            let (member, mut offset) = (word(&self.data, at + 4)?, word(&self.data, at + 8)?);
            if info >> 31 == 1 {
                offset &= 0x00ff_ffff;
            }
            match self.name(word(&self.data, at)?) {
                [] => anonymous.push((offset, self.bare(member))),
                found if found == name => return Some((offset, member)),
                _ => {}
            }
        }
        anonymous.into_iter().find_map(|(base, id)| {
            let (offset, member) = self.member(id, name, depth + 1)?;
            Some((base + offset, member))
        })
    }

    /// The type behind typedefs and qualifiers.
    fn bare(&self, mut id: u32) -> u32 {
        for _ in 0..32 {
            match self.kind(id) {
                TYPEDEF | 9..=11 | 18 => id = self.target(id).unwrap_or(0),
                _ => break,
            }
        }
        id
    }

    fn kind(&self, id: u32) -> u32 {
        match self.types.get(id as usize) {
            Some(at) if id != 0 => word(&self.data, at + 4).unwrap_or(0) >> 24 & 0x1f,
            _ => 0,
        }
    }

    fn target(&self, id: u32) -> Option<u32> {
        word(&self.data, *self.types.get(id as usize)? + 8)
    }

    fn name(&self, offset: u32) -> &[u8] {
        let from = self.data.get(self.strings + offset as usize..).unwrap_or_default();
        from.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::Btf;

    const STRINGS: &[u8] = b"\0outer\0a\0inner\0b\0btf_trace_t\0";

    /// `struct inner { int b @64 }`, `struct outer { int a @0; struct { struct inner inner @32 } @64 }`, and
    /// `typedef void (*btf_trace_t)(void *, struct outer *)`.
    fn sample() -> Vec<u8> {
        let types: &[&[u32]] = &[
            &[0, 1 << 24, 4, 32],                     // 1: int
            &[9, 4 << 24 | 1, 16, 15, 1, 64],         // 2: inner
            &[0, 4 << 24 | 1, 16, 9, 2, 32],          // 3: anonymous
            &[1, 4 << 24 | 2, 24, 7, 1, 0, 0, 3, 64], // 4: outer
            &[0, 2 << 24, 4],                         // 5: outer *
            &[0, 13 << 24 | 2, 0, 0, 7, 0, 5],        // 6: proto
            &[0, 2 << 24, 0],                         // 7: void *
            &[0, 2 << 24, 6],                         // 8: proto *
            &[17, 8 << 24, 8],                        // 9: typedef
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
        assert_eq!(btf.offset("outer", "a"), Some(0));
        assert_eq!(btf.offset("outer", "inner"), Some(12));
        assert_eq!(btf.offset("outer", "inner.b"), Some(20));
        assert_eq!(btf.offset("outer", ""), Some(24));
        assert_eq!(btf.offset("outer", "missing"), None);
        assert_eq!(btf.offset("missing", "a"), None);
        assert_eq!(btf.tracepoint("t"), Some(vec!["outer".to_owned()]));
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
    }
}
