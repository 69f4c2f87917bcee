//! The record ABI between the BPF programs and user space.
#![no_std]
