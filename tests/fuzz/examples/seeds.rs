//! Writes the seeds that recorded traffic gives into the corpus: `cargo xtask fuzz --seeds`.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let corpus = env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: seeds CORPUS"))?;
    for (target, seeds) in podlapse_fuzz::seeds::all() {
        let dir = Path::new(&corpus).join(target);
        fs::create_dir_all(&dir)?;
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(dir.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
