//! The podlapse command.

use std::process::ExitCode;

fn main() -> ExitCode {
    podlapse::cli::main()
}
