//! The podlapse command.
fn main() {}
