//! Which domains are registrable: what one owner has below a public suffix, such as `example.co.uk` below `co.uk`.
//!
//! Promises: P4 (a site that nobody could own, or whose owner is another, is refused at load). Trust: the list of public
//! suffixes (publicsuffix.org, with its private part, such as `github.io`) is compiled in: as old as the program.

use bailiwick_model::{Host, HostPattern};

/// Says why the domain of `site:DOMAIN` is not registrable, and what would be right.
pub(crate) fn unowned(pattern: &HostPattern) -> Option<(String, String)> {
    let HostPattern::Site(domain) = pattern else {
        return None;
    };
    match psl::domain_str(domain) {
        Some(own) if own == domain && !Host::Name(domain.clone()).is_localhost() => None,
        Some(own) if own != domain => Some((
            format!("`{domain}` is a name in the site `{own}`, and no site itself"),
            format!("write `site:{own}`, or `**.{domain}` for what is below that name"),
        )),
        _ => Some((
            format!("`{domain}` is a public suffix: everybody can have names below it"),
            format!("write a domain that has one owner, as in `site:example.{domain}`"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_a_site_is_what_one_owner_has() {
        for (domain, fits) in [
            ("example.com", true),
            ("example.co.uk", true),
            ("example.test", true),
            ("alice.github.io", true),
            ("xn--mnze-0ra.example", true),
            ("co.uk", false),
            ("com", false),
            ("github.io", false),
            ("www.example.com", false),
            ("localhost", false),
            ("x.localhost", false),
        ] {
            let said = unowned(&HostPattern::Site(domain.into()));
            assert_eq!(said.is_none(), fits, "{domain}: {said:?}");
        }
        assert_eq!(unowned(&HostPattern::Any), None);
    }
}
