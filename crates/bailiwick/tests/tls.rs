//! HTTPS by method and path, as programs of all kinds see it: connections to named hosts are opened, and each believes what
//! it is shown, by its variables, by the machine's bundle, or by its own store.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use bailiwick_testkit::{Answer, Bailiwick, Origin, Root, at_level_process, skip};

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

/// Programs that ask for a URL and print what they get, by a word for each; false where the variables, or the proxy, are
/// taken from it.
fn programs(java: bool) -> Vec<(&'static str, String)> {
    let python = "import sys, urllib.request as u, urllib.error\ntry: print(u.urlopen(sys.argv[1]).read().decode())\nexcept urllib.error.HTTPError as e: print(e.code, e.read().decode())";
    let node =
        "fetch(process.argv[1]).then(async r => console.log(r.status, await r.text()), e => console.log(e.cause))";
    let mut all = vec![
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
    ];
    if java {
        all.push(("java", "timeout 60 java -Xmx200m Get.java".to_owned()));
    }
    all
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
        kit.write("Get.java", JAVA);
        kit.hand_over();
        // Outside it is there, for whoever believes its root.
        let outside = kit.shell_outside(&format!(
            "curl -sS --cacert ~/root.pem --resolve api.test:{port}:127.0.0.1 https://api.test:{port}/no/outside"
        ));
        assert_eq!(outside.stdout, "reached /no/outside", "{outside:?}");
        let java = kit.shell_outside("java -version").status == 0;
        if !java {
            skip("there is no java on this machine");
        }
        for (word, line) in programs(java) {
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
        let _ = at_level_process();
    }
}
