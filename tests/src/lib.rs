//! Real nodes to test podlapse against.
