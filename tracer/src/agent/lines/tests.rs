use std::process::Command;

use super::*;

/// What the file and those before it hold; a newline is `|`.
fn held(path: &Path) -> String {
    let name =
        |number: u32| if number == 0 { path.to_owned() } else { PathBuf::from(format!("{}.{number}", path.display())) };
    let held = (0..9).map_while(|number| fs::read_to_string(name(number)).ok());
    held.map(|text| text.replace('\n', "|")).collect::<Vec<_>>().join(" ")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_full_file_is_followed_by_the_next() {
    for (keep, all) in [(2, "g| e|f| c|d|"), (1, "g| e|f|"), (0, "g|"), (5, "g| e|f| c|d| a|b|")] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let mut lines = LineFile::open(&path, 5, keep).unwrap();
        for line in ["a\n", "b\n", "c\n", "d\n", "e\n", "f\n", "g\n"] {
            lines.write(line.as_bytes()).unwrap();
        }
        assert_eq!(held(&path), all, "keep {keep}");
        assert_eq!(mode(&path), 0o600);
    }
}

#[test]
fn goes_on_where_another_run_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    fs::write(&path, "a\nb\nhalf of").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut lines = LineFile::open(&path, 8, 1).unwrap();
    assert_eq!((held(&path), mode(&path)), ("a|b|".into(), 0o600));
    lines.write(b"c\n").unwrap();
    lines.write(b"ddd\n").unwrap();
    assert_eq!(held(&path), "ddd| a|b|c|");

    // No line of it is whole, and it is larger than what is looked at at once.
    fs::write(&path, "x".repeat(200_000)).unwrap();
    LineFile::open(&path, 8, 1).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    fs::write(&path, format!("{}\n{}", "y".repeat(100_000), "x".repeat(100_000))).unwrap();
    LineFile::open(&path, 8, 1).unwrap();
    assert_eq!(fs::read(&path).unwrap().len(), 100_001);
}

#[test]
fn a_line_that_is_larger_than_a_file_has_one_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    let mut lines = LineFile::open(&path, 4, 3).unwrap();
    for line in ["a\n", "bbbbbb\n", "c\n"] {
        lines.write(line.as_bytes()).unwrap();
    }
    assert_eq!(held(&path), "c| bbbbbb| a|");
}

#[test]
fn only_a_regular_file() {
    let dir = tempfile::tempdir().unwrap();
    let (link, other) = (dir.path().join("link"), dir.path().join("other"));
    std::os::unix::fs::symlink(&other, &link).unwrap();
    let open = |path: &Path| LineFile::open(path, 100, 1).unwrap_err().to_string();
    assert!(open(&link).contains("symbolic links"), "{}", open(&link));
    assert!(!other.exists());
    assert!(open(Path::new("/dev/full")).contains("not a regular file"));
    assert!(open(dir.path()).contains("directory"));
    assert!(open(&dir.path().join("no/such")).contains("No such file"));
}

/// Somebody else moves, removes or empties the file.
#[test]
fn files_that_go_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    let mut lines = LineFile::open(&path, 4, 2).unwrap();
    lines.write(b"a\n").unwrap();
    fs::remove_file(&path).unwrap();
    lines.write(b"b\n").unwrap();
    lines.write(b"c\n").unwrap();
    assert_eq!(held(&path), "c|");
    File::options().write(true).truncate(true).open(&path).unwrap();
    lines.write(b"d\n").unwrap();
    lines.write(b"e\n").unwrap();
    assert_eq!(held(&path), "e| d|");
}

/// A folder that is gone is an error of each line, until it is there again.
#[test]
fn a_folder_that_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("log");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("lines");
    let mut lines = LineFile::open(&path, 2, 1).unwrap();
    lines.write(b"a\n").unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(lines.write(b"b\n").is_err() && lines.write(b"c\n").is_err());
    fs::create_dir(&folder).unwrap();
    lines.write(b"d\n").unwrap();
    assert_eq!(held(&path), "d|");
}

const FULL: &str = "PODLAPSE_TEST_FULL_DISK";

/// A file that may grow to 1024 bytes only stands for a full disk: of the line that does not fit, a part is written.
#[test]
fn a_full_disk_leaves_whole_lines() {
    let Some(path) = std::env::var_os(FULL).map(PathBuf::from) else { return again_with_a_limit() };
    let mut lines = LineFile::open(&path, 10_000, 1).unwrap();
    let line = |c: &str, bytes: usize| format!("{}\n", c.repeat(bytes - 1)).into_bytes();
    for c in ["a", "b", "c"] {
        lines.write(&line(c, 300)).unwrap();
    }
    for c in ["d", "e"] {
        assert_eq!(lines.write(&line(c, 300)).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        assert_eq!(fs::metadata(&path).unwrap().size(), 900, "nothing of it is left");
    }
    lines.write(&line("f", 100)).unwrap();
    assert!(fs::read_to_string(&path).unwrap().ends_with(&format!("{}\n{}\n", "c".repeat(299), "f".repeat(99))));
    // Room comes back.
    fs::remove_file(&path).unwrap();
    assert!(lines.write(&line("g", 300)).is_err());
    lines.write(&line("h", 300)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), line("h", 300));
}

/// Limits are a process's: runs the test once more, in a process of its own.
fn again_with_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" agent::lines::tests::a_full_disk_leaves_whole_lines --exact";
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", script]).arg(std::env::current_exe().unwrap()).env(FULL, &path).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::metadata(&path).unwrap().size(), 300, "it ran");
}
