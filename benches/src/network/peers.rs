//! What else people put between a client and the world: squid (a tunnel, and opened), and mitmproxy (opened).
//!
//! Each runs on a free port of the loopback, with names of its own for this machine, and ends with its value. They need root,
//! for those names.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A proxy that runs.
pub struct Peer {
    child: Child,
    /// The port where it passes connections on unread.
    pub tunnel: u16,
    /// The port where it opens them.
    pub opened: u16,
    /// Whom a client believes where it is opened.
    pub authority: PathBuf,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It and all that it started, which have a group of their own.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// Its first process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn start(script: &str, (tunnel, opened): (u16, u16), authority: PathBuf) -> Result<Self, String> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|fault| format!("cannot be started: {fault}"))?;
        let mut peer = Self {
            child,
            tunnel,
            opened,
            authority,
        };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", opened)).is_err() || !peer.authority.exists() {
            if begun.elapsed() > Duration::from_secs(30) || peer.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("does not listen on port {opened}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(peer)
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(|fault| fault.to_string())
}

fn written(path: PathBuf, text: &str) -> Result<PathBuf, String> {
    let file = std::fs::File::create(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    file.map(|()| path).map_err(|fault| fault.to_string())
}

/// The first of these that is there.
fn program(places: &[&str]) -> Result<String, String> {
    let along = std::env::var("PATH").unwrap_or_default();
    let found = places.iter().find_map(|place| match place.strip_prefix('/') {
        Some(_) => Path::new(place).exists().then(|| (*place).to_owned()),
        None => along
            .split(':')
            .map(|folder| format!("{folder}/{place}"))
            .find(|at| Path::new(at).exists()),
    });
    found.ok_or_else(|| format!("`{}` is not installed", places.first().unwrap_or(&"")))
}

/// Squid. `folder` is its own; `root` is whom it believes; `name` stands for this machine.
pub fn squid(folder: &Path, root: &str, name: &str) -> Result<Peer, String> {
    let squid = program(&["squid", "/usr/sbin/squid"])?;
    let makes = program(&[
        "/usr/lib/squid/security_file_certgen",
        "/usr/lib64/squid/security_file_certgen",
    ])?;
    let (tunnel, opened) = (free_port()?, free_port()?);
    let at = folder.display();
    let hosts = written(folder.join("hosts"), &format!("127.0.0.1 localhost {name}\n"))?;
    written(folder.join("root.pem"), root)?;
    let (certificate, key) = bailiwick_testkit::Root::new().with_key();
    let authority = written(folder.join("authority.pem"), &certificate)?;
    written(folder.join("authority.key"), &key)?;
    let text = format!(
        "http_port 127.0.0.1:{tunnel}\n\
         http_port 127.0.0.1:{opened} ssl-bump generate-host-certificates=on tls-cert={at}/authority.pem tls-key={at}/authority.key\n\
         sslcrtd_program {makes} -s {at}/made -M 4MB\n\
         tls_outgoing_options cafile={at}/root.pem\n\
         acl opened localport {opened}\nssl_bump bump opened\nhttp_access allow all\n\
         cache deny all\naccess_log none\ncache_log {at}/log\npid_filename none\nhosts_file {}\ncoredump_dir {at}\n\
         client_persistent_connections on\nserver_persistent_connections on\nshutdown_lifetime 1 second\n",
        hosts.display()
    );
    written(folder.join("squid.conf"), &text)?;
    let script = format!(
        "rm -rf {at}/made && {makes} -c -s {at}/made -M 4MB && chown -R proxy {at} && exec {squid} -N -f {at}/squid.conf"
    );
    Peer::start(&script, (tunnel, opened), authority)
}

/// Mitmproxy, without its screen.
pub fn mitmproxy(folder: &Path, root: &str, name: &str) -> Result<Peer, String> {
    let mitmdump = program(&["mitmdump", "/var/cache/mitm/bin/mitmdump"])?;
    let port = free_port()?;
    let at = folder.display();
    written(folder.join("hosts"), &format!("127.0.0.1 localhost {name}\n"))?;
    written(folder.join("root.pem"), root)?;
    let script = format!(
        "mount --bind {at}/hosts /etc/hosts && exec {mitmdump} --quiet --listen-host 127.0.0.1 --listen-port {port} \
         --set confdir={at} --set ssl_verify_upstream_trusted_ca={at}/root.pem --set stream_large_bodies=1m"
    );
    Peer::start(&script, (port, port), folder.join("mitmproxy-ca-cert.pem"))
}
