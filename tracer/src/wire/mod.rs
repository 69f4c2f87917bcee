//! From socket bytes to messages: HTTP/2 and gRPC on the CRI socket, ttrpc on the shims. Pure.
#![forbid(unsafe_code)]
