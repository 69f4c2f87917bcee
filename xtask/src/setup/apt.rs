//! Debian packages without installing them.
//!
//! A private apt state (lists, sources, cache) in the tools folder, on the mirror that the
//! machine's own apt uses; packages are unpacked with `dpkg -x`. Never touches apt's or dpkg's
//! state of the machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Tools;
use crate::sh;

/// The file of a tree that lists its packages, and one line of it.
const PACKAGES: &str = "packages";
const FORMAT: &str = "${Package} ${Version}\n";

/// A place that has packages of one suite.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    mirror: String,
    suite: String,
}

/// An apt of our own, its lists up to date.
#[derive(Debug)]
pub(super) struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// The machine's own release, with its updates and security fixes.
    pub(super) fn native(tools: &Tools) -> Result<Self> {
        let codename = codename()?;
        let sources: Vec<Source> =
            machine_sources()?.into_iter().filter(|source| source.suite.starts_with(&codename)).collect();
        if sources.is_empty() {
            bail!("this machine's apt has no source for its own release {codename}");
        }
        Self::open(tools, &codename, &["deb"], &sources)
    }

    /// Another suite of the same distribution, from the mirror of the machine's own release.
    pub(super) fn suite(tools: &Tools, suite: &str) -> Result<Self> {
        Self::open(tools, suite, &["deb"], &[of_suite(suite)?])
    }

    /// The same, with the suite's source packages.
    pub(super) fn suite_with_sources(tools: &Tools, suite: &str) -> Result<Self> {
        Self::open(tools, &format!("{suite}-source"), &["deb", "deb-src"], &[of_suite(suite)?])
    }

    fn open(tools: &Tools, name: &str, kinds: &[&str], sources: &[Source]) -> Result<Self> {
        let apt = Self { dir: tools.path("apt").join(name) };
        if apt.dir.join("updated").exists() {
            return Ok(apt);
        }
        fs::create_dir_all(apt.dir.join("lists/partial"))?;
        fs::create_dir_all(apt.archives().join("partial"))?;
        let keyring = ["gpg", "pgp"]
            .map(|ext| format!("/usr/share/keyrings/debian-archive-keyring.{ext}"))
            .into_iter()
            .find(|path| Path::new(path).exists());
        let option = keyring.map_or_else(String::new, |path| format!("[signed-by={path}] "));
        let line = |kind: &&str, source: &Source| format!("{kind} {option}{} {} main\n", source.mirror, source.suite);
        let lines: Vec<String> =
            sources.iter().flat_map(|source| kinds.iter().map(move |kind| line(kind, source))).collect();
        fs::write(apt.sources(), lines.concat())?;
        sh::output(apt.command("apt-get").args(["-o", "APT::Update::Error-Mode=any", "-qq", "update"])).with_context(
            || {
                format!(
                    "cannot read the package lists of {name} (is the network there, and is the disk \
                 not full?)"
                )
            },
        )?;
        fs::write(apt.dir.join("updated"), "")?;
        Ok(apt)
    }

    /// The versions of a package that this suite has, newest first.
    pub(super) fn versions(&self, package: &str) -> Result<Vec<String>> {
        let table = sh::output(self.command("apt-cache").args(["madison", package]))?;
        Ok(table.lines().filter_map(|line| line.split('|').nth(1)).map(|version| version.trim().to_owned()).collect())
    }

    /// The package that a metapackage stands for.
    pub(super) fn depends(&self, package: &str, prefix: &str) -> Result<String> {
        let table = sh::output(self.command("apt-cache").args(["depends", "--no-recommends", package]))?;
        table
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|name| name.starts_with(prefix))
            .map(str::to_owned)
            .with_context(|| format!("{package} depends on no {prefix}…:\n{table}"))
    }

    /// Unpacks the named packages (`name` or `name=version`) alone into `tree`.
    pub(super) fn unpack(&self, packages: &[&str], tree: &Path) -> Result<()> {
        self.download(packages)?;
        self.unpack_archives(tree)
    }

    /// Unpacks the named packages, and those they depend on that this machine has not, into
    /// `tree`.
    pub(super) fn unpack_closure(&self, packages: &[&str], tree: &Path) -> Result<()> {
        self.download(packages)?;
        self.download_closure(packages, &[])?;
        self.unpack_archives(tree)
    }

    /// Unpacks the named packages and all that they depend on, their own libc too, into `tree`.
    pub(super) fn unpack_whole(&self, packages: &[&str], tree: &Path) -> Result<()> {
        // As on a machine with no package at all.
        let none = self.dir.join("status");
        fs::write(&none, "")?;
        self.download_closure(packages, &["-o", &format!("Dir::State::Status={}", none.display())])?;
        self.unpack_archives(tree)
    }

    fn download_closure(&self, packages: &[&str], options: &[&str]) -> Result<()> {
        sh::output(
            self.command("apt-get")
                .args(["install", "-qq", "--yes", "--download-only", "--no-install-recommends"])
                .args(["-o", "Debug::NoLocking=1"])
                .args(options)
                .args(packages),
        )
        .context("cannot fetch what the packages depend on")?;
        Ok(())
    }

    fn download(&self, packages: &[&str]) -> Result<()> {
        sh::output(self.command("apt-get").current_dir(self.archives()).args(["-qq", "download"]).args(packages))?;
        Ok(())
    }

    /// Fetches the archives of a source package into a folder.
    pub(super) fn source(&self, package: &str, into: &Path) -> Result<()> {
        let mut get = self.command("apt-get");
        sh::output(get.current_dir(into).args(["-qq", "source", "--download-only", package]))?;
        Ok(())
    }

    /// The file that lists where packages come from.
    pub(super) fn sources(&self) -> PathBuf {
        self.dir.join("sources.list")
    }

    fn archives(&self) -> PathBuf {
        self.dir.join("cache/archives")
    }

    /// Into a new folder first: `tree` is whole or not there. The file `packages` in it says what
    /// it was made of.
    fn unpack_archives(&self, tree: &Path) -> Result<()> {
        let fresh = suffixed(tree, "new");
        remove_tree(&fresh)?;
        fs::create_dir_all(&fresh)?;
        let mut packages = String::new();
        for entry in fs::read_dir(self.archives())? {
            let deb = entry?.path();
            if deb.extension().is_some_and(|ext| ext == "deb") {
                sh::output(Command::new("dpkg").arg("-x").arg(&deb).arg(&fresh))?;
                packages += &sh::output(Command::new("dpkg-deb").args(["-W", "--showformat", FORMAT]).arg(&deb))?;
                fs::remove_file(&deb)?;
            }
        }
        fs::write(fresh.join(PACKAGES), packages)?;
        remove_tree(tree)?;
        fs::rename(&fresh, tree)?;
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let dir = self.dir.display();
        for option in [
            format!("Dir::State::Lists={dir}/lists"),
            format!("Dir::Etc::SourceList={dir}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".into(),
            "Dir::Etc::Preferences=/dev/null".into(),
            "Dir::Etc::PreferencesParts=/dev/null".into(),
            format!("Dir::Cache={dir}/cache"),
            "APT::Sandbox::User=root".into(),
            "Acquire::Languages=none".into(),
            "Acquire::Retries=3".into(),
        ] {
            command.arg("-o").arg(option);
        }
        command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// The versions of these packages that a tree was made of, for a human.
pub(super) fn versions_in(tree: &Path, packages: &[&str]) -> Result<String> {
    let made_of = fs::read_to_string(tree.join(PACKAGES))?;
    let wanted = |line: &&str| line.split(' ').next().is_some_and(|name| packages.contains(&name));
    Ok(made_of.lines().filter(wanted).collect::<Vec<_>>().join(", "))
}

/// `with_extension` would take the end of a version for one.
fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Removes the package lists: the next setup that needs one reads a new one.
pub(super) fn forget_lists(tools: &Tools) -> Result<()> {
    remove_tree(&tools.path("apt"))
}

/// Removes a folder that need not be there.
pub(super) fn remove_tree(tree: &Path) -> Result<()> {
    match fs::remove_dir_all(tree) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", tree.display()))
        }
        _ => Ok(()),
    }
}

/// The release's name, as its suites are called.
fn codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    parse_codename(&text).context(
        "/etc/os-release names no Debian release (VERSION_CODENAME): the tools come from Debian \
         packages; on another system install them yourself, see README.md",
    )
}

fn parse_codename(os_release: &str) -> Option<String> {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"').to_owned())
}

/// A suite on the mirror of the machine's own release.
fn of_suite(suite: &str) -> Result<Source> {
    let codename = codename()?;
    let sources = machine_sources()?;
    let mirror = sources
        .iter()
        .find(|source| source.suite == codename)
        .or(sources.first())
        .context("this machine's apt has no package source")?;
    Ok(Source { mirror: mirror.mirror.clone(), suite: suite.to_owned() })
}

/// The sources of the machine's apt; works also when it never read its lists.
fn machine_sources() -> Result<BTreeSet<Source>> {
    let uris = sh::output(
        Command::new("apt-get").args(["-o", "Debug::NoLocking=1", "update", "--print-uris"]).env("LC_ALL", "C"),
    )
    .context("cannot ask apt for its sources: setup needs Debian's apt and dpkg")?;
    Ok(parse_sources(&uris))
}

/// Lines such as `'scheme://mirror/dists/suite/main/binary-amd64/Packages.xz' name 0`.
fn parse_sources(uris: &str) -> BTreeSet<Source> {
    let source = |line: &str| {
        let uri = line.strip_prefix('\'')?.split('\'').next()?;
        let (mirror, rest) = uri.split_once("/dists/")?;
        let (suite, _) = rest.split_once("/main/binary-")?;
        Some(Source { mirror: mirror.to_owned(), suite: suite.to_owned() })
    };
    uris.lines().filter_map(source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_print_uris() {
        let uris = "'http://mirror.test/debian/dists/bookworm/InRelease' x 0 \n\
            'http://mirror.test/debian/dists/bookworm/main/binary-amd64/Packages.xz' x 0 \n\
            'http://mirror.test/debian/dists/bookworm/main/binary-all/Packages.xz' x 0 \n\
            'http://other.test/linux/dists/bookworm/stable/binary-amd64/Packages.xz' x 0 \n";
        let found: Vec<_> = parse_sources(uris).into_iter().collect();
        let want = Source { mirror: "http://mirror.test/debian".into(), suite: "bookworm".into() };
        assert_eq!(found, [want]);
    }

    #[test]
    fn codename_of_os_release() {
        let text = "ID=debian\nVERSION_CODENAME=\"bookworm\"\n";
        assert_eq!(parse_codename(text).as_deref(), Some("bookworm"));
        assert_eq!(parse_codename("ID=alpine\n"), None);
    }
}
