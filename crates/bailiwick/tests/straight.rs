//! Programs that know no proxy: whatever they are written in, whatever the port, they come out at the network gate.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use bailiwick_testkit::{Bailiwick, Origin, at_level_process, skip};

/// A fresh home of whoever runs the test, and one of an ordinary user.
fn kits() -> [Bailiwick; 2] {
    [Bailiwick::new(), Bailiwick::as_ordinary_user()]
}

/// A server of a protocol of its own: it greets, and answers one line.
struct Service {
    port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&heard);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    kept.lock().unwrap().push("connected".into());
                    let _ = stream.write_all(b"ready\n");
                    let mut line = String::new();
                    let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut line);
                    kept.lock().unwrap().push(line.trim().to_owned());
                    let _ = stream.write_all(format!("hello {line}").as_bytes());
                });
            }
        });
        Self { port, heard }
    }

    fn heard(&self) -> Vec<String> {
        let mut heard = std::mem::take(&mut *self.heard.lock().unwrap());
        heard.retain(|line| line != "connected");
        heard.sort();
        heard
    }
}

const JAVA: &str = "import java.io.*; import java.net.*; class Talk { public static void main(String[] a) throws Exception { \
    try (Socket s = new Socket(a[0], Integer.parseInt(a[1]))) { s.getOutputStream().write(\"java\\n\".getBytes()); \
    BufferedReader r = new BufferedReader(new InputStreamReader(s.getInputStream())); System.out.println(r.readLine() + \" \" + r.readLine()); } } }";

const C: &str = r#"#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int c, char **a) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(a[2])), .sin_addr.s_addr = inet_addr(a[1])};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&to, sizeof to)) return perror("connect"), 1;
    write(s, "c\n", 2);
    char b[99]; int n; while ((n = read(s, b, 99)) > 0) write(1, b, n);
}
"#;

/// Lines that talk to a service by name and port, by the word that each says.
fn talks(host: &str, port: u16, java: bool) -> Vec<(&'static str, String)> {
    let mut all = vec![
        (
            "bash",
            format!("bash -c 'exec 3<>/dev/tcp/{host}/{port} && echo bash >&3 && cat <&3'"),
        ),
        ("nc", format!("echo nc | timeout 9 nc {host} {port}")),
        (
            "python",
            format!(
                "python3 -c \"import socket; s = socket.create_connection(('{host}', {port}), 9); s.send(b'python\\n'); print(s.makefile().read())\""
            ),
        ),
        (
            "node",
            format!(
                "node -e \"let s = require('net').connect({port}, '{host}'); s.write('node\\n'); s.on('error', e => {{ console.log(e.code); process.exit(1) }}); s.pipe(process.stdout)\""
            ),
        ),
        (
            "c",
            format!("at=$(getent ahostsv4 {host} | head -1 | cut -d' ' -f1); ./talk ${{at:-192.0.2.7}} {port}"),
        ),
    ];
    if java {
        all.push(("java", format!("timeout 60 java -Xmx200m Talk.java {host} {port}")));
    }
    all
}

#[test]
fn c030_every_port_of_a_name_is_reached_without_a_proxy_and_nothing_else() {
    for kit in kits() {
        let (ok, other) = (Service::start(), Service::start());
        let web = Origin::start();
        let (db, page) = (ok.port, web.port());
        kit.write("Talk.java", JAVA);
        kit.write("talk.c", C);
        assert_eq!(
            kit.shell_outside("gcc -static -O1 -o talk talk.c").status,
            0,
            "gcc is needed"
        );
        let java = kit.shell_outside("java -version").status == 0;
        if !java {
            skip("there is no java on this machine");
        }
        for (word, line) in talks("127.0.0.1", db, java)
            .into_iter()
            .chain(talks("127.0.0.1", other.port, java))
        {
            let said = kit.shell_outside(&line);
            assert!(said.stdout.contains(&format!("hello {word}")), "{line}: {said:?}");
        }
        let words = ok.heard();
        assert_eq!(other.heard(), words);
        kit.write(
            "bailiwick.toml",
            &format!(
                "extends = [\"coding\"]\n[network]\ntunnel = [\"db.test:{db}\"]\nallow = [\"GET http://web.test:{page}/**\"]\n\
                 [network.hosts]\n\"db.test\" = \"127.0.0.1\"\n\"web.test\" = \"127.0.0.1\"\n\"other.test\" = \"127.0.0.1\"\n"
            ),
        );
        kit.run(&["trust"]).ok();
        for (word, line) in talks("db.test", db, java) {
            let said = kit.shell(&line);
            assert!(said.stdout.contains(&format!("hello {word}")), "{line}: {said:?}");
        }
        assert_eq!(ok.heard(), words);
        // Another port of the name, another name, the address itself, and what is no name.
        for (host, port) in [
            ("db.test", other.port),
            ("other.test", other.port),
            ("192.0.2.7", db),
            ("192.0.2.7", 22),
        ] {
            for (_, line) in talks(host, port, false) {
                let said = kit.shell(&line);
                assert!(
                    !said.stdout.contains("hello") && !said.stdout.contains("ready"),
                    "{line}: {said:?}"
                );
            }
        }
        assert!(ok.heard().is_empty() && other.heard().is_empty());
        let log = kit.run(&["log", "show", "--denied"]).ok().stdout;
        for told in [
            format!("tunnel 192.0.2.7:{db}"),
            "connect 192.0.2.7:22".into(),
            format!("connect 198.19.0.1:{} (db.test)", other.port),
            "resolve other.test".into(),
        ] {
            assert!(log.contains(&told), "{told}: {log}");
        }
        // Plain HTTP, judged request by request.
        let bare = "env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY NODE_USE_ENV_PROXY=0";
        for line in [
            format!("curl -sS -m 9 --noproxy '*' http://web.test:{page}/curl"),
            format!(
                "{bare} python3 -c \"import urllib.request as u; print(u.urlopen('http://web.test:{page}/python').read().decode())\""
            ),
            format!("{bare} node -e \"fetch('http://web.test:{page}/node').then(r => r.text()).then(console.log)\""),
        ] {
            let said = kit.shell(&line);
            assert!(said.stdout.contains("ok"), "{line}: {said:?}");
        }
        let refused = kit.shell(&format!(
            "curl -sS -m 9 --noproxy '*' -X POST http://web.test:{page}/post"
        ));
        assert!(refused.stdout.contains("bailiwick refused POST"), "{refused:?}");
        let heard: Vec<String> = web.requests().into_iter().map(|heard| heard.target).collect();
        assert_eq!(heard, ["/curl", "/python", "/node"]);
    }
}

#[test]
fn p1_a_datagram_and_a_socket_that_comes_later_are_on_record() {
    if at_level_process() {
        // There are no datagrams, and the probe needs one that is sent.
        return;
    }
    for kit in kits() {
        let later = kit.project().join("later.sock");
        let line = "python3 -c \"import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('8.8.8.8', 53))
s.connect(('1.1.1.1', 443))
open('began', 'w')
import os, time
while not os.path.exists('later.sock'): time.sleep(.01)
print(socket.socket(socket.AF_UNIX).connect_ex('later.sock'))\"";
        let mut command = kit.command(&["run", "-q", "--", "bash", "-c", line]);
        command.stdout(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        while !kit.project().join("began").exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let listener = std::os::unix::net::UnixListener::bind(kit.project().join("new.sock")).unwrap();
        std::fs::set_permissions(
            kit.project().join("new.sock"),
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )
        .unwrap();
        std::os::unix::net::UnixStream::connect(kit.project().join("new.sock")).unwrap();
        listener.accept().unwrap();
        std::fs::rename(kit.project().join("new.sock"), &later).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "13", "EACCES");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
        let log = kit.run(&["log", "show", "--denied"]).ok().stdout;
        assert!(log.contains("datagram to 8.8.8.8:53"), "{log}");
        assert!(log.contains(&format!("connect {}", later.display())), "{log}");
        assert!(!log.contains("1.1.1.1"), "nothing was sent there: {log}");
    }
}

/// An SSH server of this machine's, with a key of its own, which nobody can sign in to.
struct SshServer {
    child: std::process::Child,
    port: u16,
    /// As `ssh-keygen -l` prints it.
    fingerprint: String,
    folder: tempfile::TempDir,
}

impl SshServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        let run = |program: &str, arguments: &[&str]| {
            let done = std::process::Command::new(program).args(arguments).output();
            String::from_utf8(
                done.unwrap_or_else(|e| panic!("{program}: {e}: run ./scripts/test"))
                    .stdout,
            )
            .unwrap()
        };
        let path = key.to_str().unwrap();
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", path]);
        let told = run("ssh-keygen", &["-l", "-f", path]);
        let fingerprint = told.split(' ').nth(1).unwrap().to_owned();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::write(
            folder.path().join("config"),
            format!("ListenAddress 127.0.0.1\nPort {port}\nHostKey {path}\nUsePAM no\nPidFile none\n"),
        )
        .unwrap();
        // As root it wants a folder that is nobody else's.
        let _ = std::fs::create_dir("/run/sshd");
        let child = std::process::Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(folder.path().join("config"))
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("sshd: {e}: run ./scripts/test"));
        let begun = std::time::Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(10), "sshd listens");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Self {
            child,
            port,
            fingerprint,
            folder,
        }
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn p5_an_ssh_server_is_known_by_its_key() {
    let named = std::process::Command::new("id").arg("-un").output();
    if !named.is_ok_and(|named| named.status.success()) {
        return skip("OpenSSH starts for nobody whose user has no name");
    }
    let server = SshServer::start();
    let port = server.port;
    let public = std::fs::read_to_string(server.folder.path().join("key.pub")).unwrap();
    let key = public.split(' ').nth(1).unwrap();
    let another = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for kit in kits() {
        let scan = |host: &str| format!("ssh-keyscan -T 9 -t ed25519 -p {port} {host} 2>&1");
        assert!(kit.shell_outside(&scan("127.0.0.1")).stdout.contains(key));
        let mut shown = Vec::new();
        for (name, pin) in [("own.test", server.fingerprint.as_str()), ("other.test", another)] {
            kit.write(
                "bailiwick.toml",
                &format!(
                    "extends = [\"coding\"]\n[network]\ntunnel = [{{ rule = \"{name}:{port}\", pin = [\"{pin}\"] }}]\n\
                     [network.hosts]\n\"{name}\" = \"127.0.0.1\"\n"
                ),
            );
            kit.run(&["trust"]).ok();
            shown.push(kit.shell(&scan(name)).stdout.contains(key));
        }
        assert_eq!(
            shown,
            [true, false],
            "its key comes through where the rule names it, and nothing else does"
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains("another key than the rule names"), "{log}");
    }
}
