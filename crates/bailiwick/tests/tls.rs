//! HTTPS by method and path, as programs of all kinds see it: connections to named hosts are opened, and each believes what
//! it is shown, by its variables, by the machine's bundle, or by its own store.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bailiwick_testkit::{Answer, Bailiwick, Origin, Root, skip};

/// A fresh home of whoever runs the test, and one of an ordinary user.
fn kits() -> [Bailiwick; 2] {
    [Bailiwick::new(), Bailiwick::as_ordinary_user()]
}

/// A project from which `GET https://api.test:PORT/ok/**` is allowed, on a machine whose person believes a root of the
/// test's.
fn project(kit: &Bailiwick, root: &Root, port: u16) {
    kit.write_home("root.pem", root.pem());
    kit.write_home(
        ".config/bailiwick/rules.toml",
        "extends = [\"ceiling\"]\n[network]\nroots = [\"~/root.pem\"]\n",
    );
    kit.write(
        "bailiwick.toml",
        &format!(
            "extends = [\"coding\"]\n[network]\nallow = [\"GET https://api.test:{port}/ok/**\"]\n\
             [network.hosts]\n\"api.test\" = \"127.0.0.1\"\n"
        ),
    );
    kit.hand_over();
    kit.run(&["trust"]).ok();
}

/// What takes all that names the task's bundles, and the proxy, from a program.
const BARE: &str = "env -u SSL_CERT_FILE -u CURL_CA_BUNDLE -u REQUESTS_CA_BUNDLE -u NODE_EXTRA_CA_CERTS -u http_proxy \
    -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u all_proxy -u ALL_PROXY NODE_USE_ENV_PROXY=0";

const JAVA: &str = "import java.net.*; import java.net.http.*; class Get { public static void main(String[] a) throws Exception { \
    var r = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()); \
    System.out.println(r.statusCode() + \" \" + r.body()); } }";

const GO: &str = "package main\nimport (\"fmt\"; \"io\"; \"net/http\"; \"os\")\nfunc main() { r, e := http.Get(os.Args[1]); \
    if e != nil { fmt.Println(e); return }; b, _ := io.ReadAll(r.Body); fmt.Println(r.StatusCode, string(b)) }\n";

/// Programs that ask for a URL and print what they get, by a word for each; false where the variables, or the proxy, are
/// taken from it.
fn programs() -> Vec<(&'static str, String)> {
    let python = "import sys, urllib.request as u, urllib.error\ntry: print(u.urlopen(sys.argv[1]).read().decode())\nexcept urllib.error.HTTPError as e: print(e.code, e.read().decode())";
    let node =
        "fetch(process.argv[1]).then(async r => console.log(r.status, await r.text()), e => console.log(e.cause))";
    vec![
        ("curl", "curl -sS -m 9".to_owned()),
        ("curl-straight", "curl -sS -m 9 --noproxy '*'".to_owned()),
        (
            "wget",
            "wget -q -O - --content-on-error --tries=1 --timeout=9".to_owned(),
        ),
        ("python", format!("python3 -c \"{python}\"")),
        ("node", format!("node -e \"{node}\"")),
        ("curl-bare", format!("{BARE} curl -sS -m 9")),
        (
            "wget-bare",
            format!("{BARE} wget -q -O - --content-on-error --tries=1 --timeout=9"),
        ),
        ("python-bare", format!("{BARE} python3 -c \"{python}\"")),
    ]
}

#[test]
fn p1_programs_are_judged_by_method_and_path_and_believe_the_task() {
    for kit in kits() {
        let root = Root::new();
        let origin = Origin::over_tls(&root, &["api.test"], |heard| {
            Answer::text(200, format!("reached {}", heard.target))
        });
        let port = origin.port();
        project(&kit, &root, port);
        // Outside it is there, for whoever believes its root.
        let outside = kit.shell_outside(&format!(
            "curl -sS --cacert ~/root.pem --resolve api.test:{port}:127.0.0.1 https://api.test:{port}/no/outside"
        ));
        assert_eq!(outside.stdout, "reached /no/outside", "{outside:?}");
        for (word, line) in programs() {
            let good = kit.shell(&format!("{line} https://api.test:{port}/ok/{word}"));
            assert!(good.stdout.contains(&format!("reached /ok/{word}")), "{word}: {good:?}");
            let bad = kit.shell(&format!("{line} https://api.test:{port}/no/{word}"));
            assert!(
                bad.stdout.contains("bailiwick refused GET https://api.test"),
                "{word}: {bad:?}"
            );
        }
        let posted = kit.shell(&format!("curl -sS -m 9 -d x=1 https://api.test:{port}/ok/post"));
        assert!(posted.stdout.contains("bailiwick refused POST"), "{posted:?}");
        let other = kit.shell(&format!("curl -sS -m 9 https://other.test:{port}/ok/other"));
        assert!(other.stderr.contains("403"), "{other:?}");
        let heard: Vec<String> = origin.requests().into_iter().map(|heard| heard.target).collect();
        assert!(
            heard.iter().skip(1).all(|target| target.starts_with("/ok/")),
            "{heard:?}"
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains(&format!("GET https://api.test:{port}/ok/curl")), "{log}");
    }
}

#[test]
fn c035_what_is_opened_and_what_is_passed_on_are_both_believed() {
    for kit in kits() {
        // Each server is under a root of its own; the person believes both.
        let (one, two) = (Root::new(), Root::new());
        let answer = |heard: &bailiwick_testkit::Heard| {
            if heard.target.contains("info/refs") {
                Answer::text(200, "4b825dc642cb6eb9a060e54bf8d69288fbee4904\trefs/heads/main\n")
            } else {
                Answer::text(200, format!("reached {}", heard.target))
            }
        };
        let api = Origin::over_tls(&one, &["api.test"], answer);
        let plain = Origin::over_tls(&two, &["plain.test"], answer);
        let (opened, passed) = (api.port(), plain.port());
        kit.write_home("roots.pem", &format!("{}{}", one.pem(), two.pem()));
        kit.write_home(
            ".config/bailiwick/rules.toml",
            "extends = [\"ceiling\"]\n[network]\nroots = [\"~/roots.pem\"]\n",
        );
        kit.write(
            "bailiwick.toml",
            &format!(
                "extends = [\"coding\"]\n[network]\nallow = [\"GET https://api.test:{opened}/**\"]\n\
                 tunnel = [\"plain.test:{passed}\"]\n\
                 [network.hosts]\n\"api.test\" = \"127.0.0.1\"\n\"plain.test\" = \"127.0.0.1\"\n"
            ),
        );
        kit.write("Get.java", JAVA);
        kit.hand_over();
        kit.run(&["trust"]).ok();
        let java = kit.shell_outside("java -version").status == 0;
        if !java {
            skip("there is no java on this machine");
        }
        let mut programs: Vec<(&str, String)> = programs().into_iter().take(5).collect();
        if kit.shell_outside("go version").status == 0 {
            kit.write("get.go", GO);
            kit.hand_over();
            kit.shell_outside("go build -o get-go get.go").ok();
            programs.push(("go", "./get-go".to_owned()));
        } else {
            skip("there is no go on this machine");
        }
        // The library itself, or the copy of it that pip brings.
        let requests = "from pip._vendor import requests";
        if kit.shell(&format!("python3 -c '{requests}'")).status == 0 {
            let line = format!("python3 -c \"import sys; {requests}; print(requests.get(sys.argv[1]).text)\"");
            programs.push(("requests", line));
        } else {
            skip("the library requests of Python is not on this machine");
        }
        // Each run is a task of its own, with an authority of its own.
        for round in 0..2 {
            for (host, port) in [("api.test", opened), ("plain.test", passed)] {
                for (word, line) in &programs {
                    let said = kit.shell(&format!("{line} https://{host}:{port}/{word}"));
                    assert!(
                        said.stdout.contains(&format!("reached /{word}")),
                        "{word} {host} {round}: {said:?}"
                    );
                }
                let said = kit.shell(&format!("git ls-remote https://{host}:{port}/repo.git"));
                assert!(said.stdout.contains("refs/heads/main"), "{host} {round}: {said:?}");
                if java && round == 0 {
                    let said = kit.shell(&format!("timeout 90 java -Xmx200m Get.java https://{host}:{port}/java"));
                    assert!(said.stdout.contains("reached /java"), "{host}: {said:?}");
                }
            }
        }
        // What is passed on shows its own certificate, what is opened the task's.
        let issuer = |host: &str, port: u16| {
            let line = format!(
                "openssl s_client -connect {host}:{port} -servername {host} </dev/null 2>&1 | grep -i '^issuer'"
            );
            kit.shell(&line).stdout
        };
        assert!(
            issuer("api.test", opened).contains("bailiwick task"),
            "{}",
            issuer("api.test", opened)
        );
        assert!(
            issuer("plain.test", passed).contains("tests' own root"),
            "{}",
            issuer("plain.test", passed)
        );
        // A program that believes a list of its own fails, and what to do is said.
        let pinned = kit.shell(&format!("curl -sS -m 9 --cacert /dev/null https://api.test:{opened}/x"));
        assert_ne!(pinned.status, 0, "{pinned:?}");
        // The gate hears of it when the client has gone, or a little later.
        let begun = std::time::Instant::now();
        let line = loop {
            let log = kit.run(&["log", "show", "--denied"]).ok().stdout;
            let line = log.lines().find(|line| line.contains("certificate-not-accepted"));
            if let Some(line) = line {
                break line.to_owned();
            }
            assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{log}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        let words = line.split_whitespace().map(|word| word.trim_end_matches(')'));
        let is_id = |word: &&str| word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = words.rev().find(is_id);
        let said = kit.run(&["explain", id.unwrap_or_else(|| panic!("{line}"))]).stdout;
        assert!(said.contains("tunnel HOST") && said.contains("SSL_CERT_FILE"), "{said}");
    }
}

#[test]
fn bundles_are_read_where_every_opening_is_held_and_names_like_theirs_are_denied() {
    for kit in kits() {
        let root = Root::new();
        let origin = Origin::over_tls(&root, &["api.test"], |_| Answer::text(200, "reached"));
        let port = origin.port();
        project(&kit, &root, port);
        let rules = std::fs::read_to_string(kit.project().join("bailiwick.toml")).unwrap();
        let strict = "[files]\ndeny = [\"**/*.pem\"]\n[fence]\nstrict = true\n";
        kit.write("bailiwick.toml", &format!("{rules}{strict}"));
        kit.write("own.pem", "mine");
        kit.hand_over();
        kit.run(&["trust"]).ok();
        for line in [
            "curl -sS -m 9",
            "python3 -c \"import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())\"",
        ] {
            let said = kit.shell(&format!("{line} https://api.test:{port}/ok/x"));
            assert!(said.stdout.contains("reached"), "{said:?}");
        }
        let hidden = kit.shell("cat own.pem");
        assert_ne!(hidden.status, 0, "{hidden:?}");
    }
}

/// What a registry of packages serves, by path.
type Shelf = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

#[test]
fn package_managers_fetch_from_an_opened_registry_and_publish_nothing() {
    for kit in kits() {
        let root = Root::new();
        let shelf = Shelf::default();
        let shown = Arc::clone(&shelf);
        let origin = Origin::over_tls(&root, &["api.test"], move |heard| {
            let path = heard.target.split('?').next().unwrap_or_default();
            match shown.lock().unwrap().get(path) {
                Some(found) if path.ends_with(".html") || path.ends_with('/') => {
                    Answer::whole(200, "text/html", found.clone())
                }
                Some(found) => Answer::whole(200, "application/octet-stream", found.clone()),
                None => Answer::text(404, "not here"),
            }
        });
        let port = origin.port();
        let base = format!("https://api.test:{port}/ok");
        let put = |path: &str, bytes: Vec<u8>| shelf.lock().unwrap().insert(format!("/ok/{path}"), bytes);
        project(&kit, &root, port);
        // pip.
        let wheel = "python3 -c \"import zipfile; z = zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w'); z.writestr('tiny.py', 'x = 1'); \
            z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n'); \
            z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'); \
            z.writestr('tiny-1.0.dist-info/RECORD', ''); z.close()\"";
        kit.shell_outside(wheel).ok();
        let read = |name: &str| std::fs::read(kit.project().join(name)).unwrap();
        put("files/tiny-1.0-py3-none-any.whl", read("tiny-1.0-py3-none-any.whl"));
        let page = format!("<a href=\"{base}/files/tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>");
        put("simple/tiny/", page.into_bytes());
        if kit.shell_outside("python3 -m pip --version").status == 0 {
            let got = kit.shell(&format!(
                "python3 -m pip download -q --no-deps --disable-pip-version-check -d got -i {base}/simple tiny && ls got"
            ));
            assert!(got.stdout.contains("tiny-1.0-py3-none-any.whl"), "{got:?}");
        } else {
            skip("there is no pip on this machine");
        }
        // npm.
        if kit.shell_outside("npm --version").status == 0 {
            kit.write("n/package.json", "{\"name\": \"n\", \"private\": true}");
            kit.write("tiny/package.json", "{\"name\": \"tiny\", \"version\": \"1.0.0\"}");
            kit.hand_over();
            kit.shell_outside("cd tiny && npm pack --silent").ok();
            put("npm/tiny-1.0.0.tgz", read("tiny/tiny-1.0.0.tgz"));
            let about = format!(
                "{{\"name\": \"tiny\", \"dist-tags\": {{\"latest\": \"1.0.0\"}}, \"versions\": {{\"1.0.0\": {{\"name\": \"tiny\", \
                 \"version\": \"1.0.0\", \"dist\": {{\"tarball\": \"{base}/npm/tiny-1.0.0.tgz\"}}}}}}}}"
            );
            put("npm/tiny", about.into_bytes());
            let line =
                format!("cd n && npm install --no-audit --no-fund --registry {base}/npm/ tiny && ls node_modules");
            let got = kit.shell(&line);
            assert!(got.stdout.contains("tiny"), "{got:?}");
            let published = kit.shell(&format!(
                "cd tiny && sed -i s/1.0.0/1.0.1/ package.json && npm publish --registry {base}/npm/ --//api.test:{port}/ok/npm/:_authToken=x"
            ));
            assert_ne!(published.status, 0, "{published:?}");
            assert!(published.stderr.contains("403"), "{published:?}");
        } else {
            skip("there is no npm on this machine");
        }
        // cargo.
        if kit.shell_outside("cargo --version").status == 0 {
            kit.write(
                "crate/Cargo.toml",
                "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[workspace]\n",
            );
            kit.write("crate/src/lib.rs", "");
            kit.hand_over();
            kit.shell_outside("cd crate && cargo package --no-verify --allow-dirty --offline -q")
                .ok();
            let sum = kit
                .shell_outside("sha256sum crate/target/package/tiny-1.0.0.crate")
                .ok()
                .stdout;
            let sum = sum.split(' ').next().unwrap().to_owned();
            put("crates/tiny-1.0.0.crate", read("crate/target/package/tiny-1.0.0.crate"));
            let dl = format!("{{\"dl\": \"{base}/crates/{{crate}}-{{version}}.crate\"}}");
            put("index/config.json", dl.into_bytes());
            let line = format!(
                "{{\"name\":\"tiny\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{sum}\",\"features\":{{}},\"yanked\":false}}\n"
            );
            put("index/ti/ny/tiny", line.into_bytes());
            kit.write(
                "uses/Cargo.toml",
                "[package]\nname = \"uses\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[dependencies]\ntiny = { version = \"1\", registry = \"ours\" }\n[workspace]\n",
            );
            kit.write("uses/src/lib.rs", "");
            kit.hand_over();
            let got = kit.shell(&format!(
                "cd uses && CARGO_REGISTRIES_OURS_INDEX=sparse+{base}/index/ cargo fetch 2>&1 && cat Cargo.lock"
            ));
            assert!(got.stdout.contains("name = \"tiny\""), "{got:?}");
        } else {
            skip("there is no cargo for this user");
        }
        let others: Vec<String> = origin
            .requests()
            .into_iter()
            .map(|heard| heard.method)
            .filter(|method| method != "GET")
            .collect();
        assert!(others.is_empty(), "{others:?}");
    }
}
