//! kubelet 1.20, built from Debian's source package with the Go of the same suite.
//!
//! A Go client with one long-lived connection for each service is what a late attach has to read, and no newer kubelet
//! can be had from packages. The tree brings its dependencies; nothing else is downloaded, and only the binary is kept.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Tools, apt, apt::Apt};
use crate::sh;

const SUITE: &str = "bookworm";
const VERSION: &str = "v1.20.2";

/// What builds it, and what unpacks its source.
const PROGRAMS: [&str; 4] = ["golang-1.19-go", "golang-1.19-src", "patch", "xz-utils"];

/// The packages that have a variable with kubelet's version, which upstream's build scripts set.
const VERSIONED: [&str; 2] = ["component-base/version", "client-go/pkg/version"];

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let kubelet = tools.path("kubelet/kubelet");
    let want = format!("kubelet {VERSION} of {SUITE}");
    tools.piece("kubelet", &want, std::slice::from_ref(&kubelet), || {
        eprintln!("setup: kubelet: go builds it, which takes some four minutes and 3 GB on two cores");
        let work = tools.path("kubelet.new");
        apt::remove_tree(&work)?;
        let apt = Apt::suite_with_sources(tools, SUITE)?;
        apt.unpack(&PROGRAMS, &work.join("programs"))?;
        let build = Build { work };
        build.unpack(&apt)?;
        let built = build.compile()?;
        let version = sh::output(Command::new(&built).arg("--version"))?;
        ensure!(version.trim().ends_with(VERSION), "the kubelet that was built says it is {}", version.trim());
        fs::create_dir_all(kubelet.parent().context("the tools folder has no kubelet")?)?;
        fs::rename(&built, &kubelet)?;
        apt::remove_tree(&build.work)
    })
}

/// A build below one folder, which is removed when it is done.
struct Build {
    work: PathBuf,
}

impl Build {
    /// Where the tree has to lie: Go 1.19 refuses its go.mod, so it is built as a GOPATH.
    fn source(&self) -> PathBuf {
        self.work.join("gopath/src/k8s.io/kubernetes")
    }

    /// The upstream tree with Debian's patches.
    fn unpack(&self, apt: &Apt) -> Result<()> {
        let (archives, source) = (self.work.join("archives"), self.source());
        fs::create_dir_all(&archives)?;
        fs::create_dir_all(&source)?;
        apt.source("kubernetes", &archives)?;
        let tar = |ending: &str, options: &[&str]| -> Result<()> {
            let archive = only(&archives, ending)?;
            sh::output(self.command("tar").args(["-x", "-f"]).arg(archive).args(options).arg("-C").arg(&source))?;
            Ok(())
        };
        tar(".orig.tar.gz", &["--strip-components=1"])?;
        tar(".debian.tar.xz", &[])?;
        let patches = source.join("debian/patches");
        let series = fs::read_to_string(patches.join("series"))?;
        for name in series.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let patch = patches.join(name);
            sh::output(self.command("patch").args(["-s", "-p1", "-d"]).arg(&source).arg("-i").arg(patch))?;
        }
        Ok(())
    }

    fn compile(&self) -> Result<PathBuf> {
        let built = self.work.join("kubelet");
        let variables = VERSIONED.map(|package| {
            let package = format!("k8s.io/kubernetes/vendor/k8s.io/{package}");
            format!("-X {package}.gitVersion={VERSION} -X {package}.gitMajor=1 -X {package}.gitMinor=20")
        });
        let mut go = self.command("nice");
        go.args(["-n", "10", "go", "build", "-ldflags"]).arg(format!("-s -w {}", variables.join(" ")));
        go.arg("-o").arg(&built).arg("k8s.io/kubernetes/cmd/kubelet").current_dir(self.source());
        let go_tree = self.work.join("programs/usr/lib/go-1.19");
        go.env("GOROOT", go_tree).env("GOPATH", self.work.join("gopath")).env("GOCACHE", self.work.join("cache"));
        go.env("GO111MODULE", "off").env("GOPROXY", "off").env("GOFLAGS", "").env("CGO_ENABLED", "0");
        sh::output(&mut go)
            .context("go cannot build kubelet: is there 2 GB of memory, and 3 GB in the tools folder?")?;
        Ok(built)
    }

    /// A command that finds the unpacked programs first.
    fn command(&self, program: &str) -> Command {
        let own = ["usr/lib/go-1.19/bin", "usr/bin"].map(|dir| self.work.join("programs").join(dir));
        let old = std::env::var_os("PATH").unwrap_or_default();
        let path: OsString = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&old))).unwrap_or(old);
        let mut command = Command::new("env");
        command.arg("--").arg(program).env("PATH", path);
        command
    }
}

/// The one file of a folder whose name ends so.
fn only(dir: &Path, ending: &str) -> Result<PathBuf> {
    let mut files = fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let found = files.find(|path| path.to_string_lossy().ends_with(ending));
    found.with_context(|| format!("the source package has no *{ending}"))
}
