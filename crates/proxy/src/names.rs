//! Names to addresses, outside the fence: pinned names first, then the system's resolver.
//!
//! Promises: P5 (one form of each address). Trust: whoever runs the name's zone chooses the addresses; each one is
//! asked about before it is dialled, so what they are is the mediator's to judge.
//! Not here: whether a name may be looked up at all (asked in `dial`, before this).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;

use bailiwick_model::Host;

use crate::limits;

/// Looks names up.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a name, best first. The gate gives up after a time limit of its own.
    fn resolve(&self, name: &str) -> impl Future<Output = io::Result<Vec<IpAddr>>> + Send;
}

/// The resolver of the machine, with all it is set up to do (`/etc/hosts`, name services, search order).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.map(|socket| socket.ip()).collect())
    }
}

type Looking = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// The look-up of this gate.
pub(crate) struct Names {
    pinned: BTreeMap<Host, IpAddr>,
    look_up: Box<dyn Fn(String) -> Looking + Send + Sync>,
}

impl Names {
    pub(crate) fn new<R: Resolve>(pinned: BTreeMap<Host, IpAddr>, resolver: R) -> Self {
        let resolver = Arc::new(resolver);
        let look_up = move |name: String| -> Looking {
            let resolver = Arc::clone(&resolver);
            Box::pin(async move { resolver.resolve(&name).await })
        };
        Self {
            pinned,
            look_up: Box::new(look_up),
        }
    }

    /// What needs no look-up: addresses, names of this machine, pinned names.
    pub(crate) fn known(&self, host: &Host) -> Option<Vec<IpAddr>> {
        if let Some(address) = host.address() {
            return Some(vec![address]);
        }
        host.is_localhost()
            .then(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
    }

    /// The addresses of a name: at most [`limits::ADDRESSES`], each once, IPv4 written as IPv6 brought back.
    pub(crate) async fn addresses(&self, host: &Host) -> Result<Vec<IpAddr>, String> {
        if let Some(address) = self.pinned.get(host) {
            return Ok(vec![*address]);
        }
        let looked = tokio::time::timeout(limits::LOOKUP_TIME, (self.look_up)(host.to_string())).await;
        let found = match looked {
            Ok(Ok(found)) => found,
            Ok(Err(fault)) => return Err(fault.to_string()),
            Err(_) => return Err(format!("no answer within {} s", limits::LOOKUP_TIME.as_secs())),
        };
        let mut kept: Vec<IpAddr> = Vec::new();
        for address in found.into_iter().map(|address| address.to_canonical()) {
            if kept.len() < limits::ADDRESSES && !kept.contains(&address) {
                kept.push(address);
            }
        }
        if kept.is_empty() {
            return Err("the name has no address".into());
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<IpAddr>);

    impl Resolve for Fixed {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(self.0.clone())
        }
    }

    struct Never;

    impl Resolve for Never {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            std::future::pending().await
        }
    }

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[tokio::test]
    async fn p5_addresses_have_one_form_and_a_limit() {
        let mut found: Vec<IpAddr> = vec!["::ffff:1.2.3.4".parse().unwrap(), "1.2.3.4".parse().unwrap()];
        found.extend((0..20u8).map(|last| IpAddr::from([9, 9, 9, last])));
        let names = Names::new([(host("pin.test"), IpAddr::from([127, 0, 0, 1]))].into(), Fixed(found));
        let addresses = names.addresses(&host("a.test")).await.unwrap();
        assert_eq!(addresses.len(), limits::ADDRESSES);
        assert_eq!(addresses[..2], [IpAddr::from([1, 2, 3, 4]), IpAddr::from([9, 9, 9, 0])]);
        assert_eq!(
            names.addresses(&host("pin.test")).await.unwrap(),
            [IpAddr::from([127, 0, 0, 1])]
        );
        assert_eq!(names.known(&host("a.test")), None);
        assert_eq!(
            names.known(&host("x.localhost")).unwrap().len(),
            2,
            "this machine's names are never looked up"
        );
        assert!(
            Names::new(BTreeMap::new(), Fixed(Vec::new()))
                .addresses(&host("a.test"))
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn p4_a_look_up_has_a_time_limit() {
        let names = Names::new(BTreeMap::new(), Never);
        let start = tokio::time::Instant::now();
        assert_eq!(
            names.addresses(&host("a.test")).await.unwrap_err(),
            "no answer within 10 s"
        );
        assert!(start.elapsed() < limits::LOOKUP_TIME * 2);
    }

    #[tokio::test]
    async fn the_system_resolver_answers() {
        let found = SystemResolver.resolve("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
    }
}
