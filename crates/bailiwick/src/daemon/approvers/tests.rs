//! Who is believed, and what is not.

use super::*;
use crate::daemon::KernelRandom;

/// 2026-11-30.
const NOW: u64 = 1_796_000_010;

fn noted() -> Result<(), String> {
    Ok(())
}

fn empty() -> (tempfile::TempDir, Approvers) {
    let folder = tempfile::tempdir().unwrap();
    let approvers = Approvers::open(folder.path());
    (folder, approvers)
}

fn code_of(approvers: &Approvers, name: &str, at: u64) -> String {
    let kept = lock(&approvers.kept);
    let Some(Shown::Code { secret, .. }) = kept.people.get(name) else {
        panic!("{name} shows codes");
    };
    totp(secret, name).unwrap().generate(at).to_string()
}

fn person() -> Approver {
    Approver {
        name: "dana".into(),
        by: Known::User,
    }
}

#[test]
fn p8_a_code_is_good_once_and_in_its_time() {
    let (folder, approvers) = empty();
    let told = approvers.enrol_code("theo", "dana", &KernelRandom, &noted).unwrap();
    assert!(
        told.starts_with("otpauth://totp/bailiwick:theo?secret=") && told.contains("issuer=bailiwick"),
        "{}",
        *told
    );
    let code = code_of(&approvers, "theo", NOW);
    for late in [NOW - 120, NOW + 120] {
        assert_eq!(approvers.check("theo", &code, late), Err(ApproverFault::Code));
    }
    let by = approvers.check("theo", &code, NOW).unwrap();
    assert_eq!((by.name.as_str(), by.by), ("theo", Known::Code));
    // Used up, also for another daemon, and so are those before it.
    assert_eq!(approvers.check("theo", &code, NOW), Err(ApproverFault::Code));
    let again = Approvers::open(folder.path());
    assert_eq!(again.check("theo", &code, NOW), Err(ApproverFault::Code));
    let before = code_of(&again, "theo", NOW - 30);
    assert_eq!(again.check("theo", &before, NOW), Err(ApproverFault::Code));
    let next = code_of(&again, "theo", NOW + 30);
    assert!(again.check("theo", &next, NOW + 30).is_ok());
    assert!(!again.is_signed_in("ida") && again.is_signed_in("theo"));
    again.sign_out("theo");
    assert!(!again.is_signed_in("theo"));
}

#[test]
fn p8_only_so_many_codes_are_looked_at() {
    let (_folder, approvers) = empty();
    approvers.enrol_code("theo", "dana", &KernelRandom, &noted).unwrap();
    approvers.enrol_code("ida", "dana", &KernelRandom, &noted).unwrap();
    let good = code_of(&approvers, "theo", NOW);
    let wrong = if good == "000000" { "000001" } else { "000000" };
    for _ in 0..TRIES {
        assert_eq!(approvers.check("theo", wrong, NOW), Err(ApproverFault::Code));
    }
    assert_eq!(approvers.check("theo", &good, NOW), Err(ApproverFault::Often));
    // Somebody else is not kept out by that, and who is not known has no more tries.
    let ida = code_of(&approvers, "ida", NOW);
    assert!(approvers.check("ida", &ida, NOW).is_ok());
    let all: Vec<_> = (0..20).map(|n| approvers.check(&format!("x{n}"), wrong, NOW)).collect();
    assert_eq!(
        all.iter().filter(|one| **one == Err(ApproverFault::Often)).count(),
        20 - TRIES
    );
    for text in [
        "",
        "12345",
        "1234567",
        "abcdef",
        "\u{661}\u{662}\u{663}\u{664}\u{665}\u{666}",
    ] {
        assert!(approvers.check("ida", text, NOW).is_err(), "{text}");
    }
}

#[test]
fn p9_what_codes_are_made_from_is_kept_for_the_account_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, approvers) = empty();
    approvers.enrol_code("theo", "dana", &KernelRandom, &noted).unwrap();
    let file = folder.path().join("approvers.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!format!("{:?}", approvers.list(&[])).contains("secret"));
    std::fs::write(&file, "{").unwrap();
    assert!(
        Approvers::open(folder.path()).list(&[]).is_empty(),
        "what makes no sense enrols nobody"
    );
}

#[test]
fn p8_nobody_is_two_people_and_the_person_is_none_of_them() {
    let (_folder, approvers) = empty();
    let own = std::fs::read_to_string("/etc/passwd").unwrap();
    let uid = rustix::process::geteuid().as_raw().to_string();
    let me = own.lines().find(|line| line.split(':').nth(2) == Some(&uid));
    if let Some(me) = me.and_then(|line| line.split(':').next()) {
        assert!(matches!(
            approvers.enrol_user("other", me, "dana", &noted),
            Err(ApproverFault::Own(_))
        ));
    }
    assert!(matches!(
        approvers.enrol_user("x", "nobody-of-that-name", "dana", &noted),
        Err(ApproverFault::NoUser(_))
    ));
    approvers.enrol_user("guest", "nobody", "dana", &noted).unwrap();
    assert!(matches!(
        approvers.enrol_user("second", "nobody", "dana", &noted),
        Err(ApproverFault::Twice(..))
    ));
    assert!(matches!(
        approvers.enrol_code("guest", "dana", &KernelRandom, &noted),
        Err(ApproverFault::Taken(_))
    ));
    for name in ["dana", "program", "agent", "", "a b", "-x", "../x", "x\u{202e}"] {
        assert!(
            approvers.enrol_code(name, "dana", &KernelRandom, &noted).is_err(),
            "{name:?}"
        );
    }
    let uid = uid_of("nobody").unwrap();
    assert_eq!(approvers.of_uid(uid).unwrap().name, "guest");
    approvers.remove("guest").unwrap();
    assert!(approvers.of_uid(uid).is_none());
    assert!(matches!(approvers.remove("guest"), Err(ApproverFault::Unknown(_))));
}

#[test]
fn p10_who_cannot_be_put_on_record_is_not_enrolled() {
    let (_folder, approvers) = empty();
    let unwritten = || Err("no space".to_owned());
    assert!(matches!(
        approvers.enrol_code("theo", "dana", &KernelRandom, &unwritten),
        Err(ApproverFault::Io(_))
    ));
    assert!(approvers.list(&[]).is_empty());
}

#[test]
fn p8_whoever_only_says_who_they_are_is_not_believed() {
    let (_folder, approvers) = empty();
    approvers.enrol_code("theo", "dana", &KernelRandom, &noted).unwrap();
    let as_of = |name: &str, by| {
        let name = name.to_owned();
        approvers.believe(Some(Approver { name, by }), person())
    };
    assert_eq!(approvers.believe(None, person()), Ok(person()));
    assert_eq!(as_of("dana", Known::User), Ok(person()));
    for (name, by) in [
        ("theo", Known::Code),
        ("theo", Known::User),
        ("dana", Known::Code),
        ("program", Known::Program),
        ("nobody", Known::Code),
    ] {
        assert!(as_of(name, by).is_err(), "{name} {by:?}");
    }
    let code = code_of(&approvers, "theo", NOW);
    approvers.check("theo", &code, NOW).unwrap();
    assert!(as_of("theo", Known::Code).is_ok());
    assert!(as_of("theo", Known::User).is_err());
    approvers.remove("theo").unwrap();
    assert!(as_of("theo", Known::Code).is_err());
}
