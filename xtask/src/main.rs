//! The developer's menu.
fn main() {}
