//! A registry on the node's loopback that never gives an image.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Node;

/// What it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// That there is no such image.
    NotFound,
    /// That it wants to know who asks.
    Unauthorized,
    /// Nothing.
    Nothing,
}

/// Listens until the process ends, in the node's network namespace.
pub(super) fn listen(node: &Node, port: u16, answer: Answer) -> Result<()> {
    use std::os::fd::AsFd;
    let namespace = File::open(format!("/proc/{}/ns/net", node.containerd_pid()?))?;
    let listener = std::thread::spawn(move || {
        // This thread alone moves there, and ends; the socket stays.
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        anyhow::Ok(TcpListener::bind(("127.0.0.1", port))?)
    });
    let listener = listener.join().map_err(|_| anyhow!("the thread that listens panicked"))??;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Who hangs up does not matter.
            std::thread::spawn(move || serve(&stream, answer));
        }
    });
    Ok(())
}

fn serve(mut stream: &TcpStream, answer: Answer) -> std::io::Result<()> {
    let status = match answer {
        Answer::NotFound => "404 Not Found",
        Answer::Unauthorized => "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"cases\"",
        Answer::Nothing => return std::io::copy(&mut stream, &mut std::io::sink()).map(drop),
    };
    for line in BufReader::new(stream).lines() {
        // The end of a request's headers; a manifest is asked for without a body.
        if line?.is_empty() {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
        }
    }
    Ok(())
}
