//! Package registries of the outer network: tests use them where they are in reach, and skip visibly where not.

use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// True for addresses that a rule must name as `private`: a mirror in the house, or addresses for documentation.
fn is_not_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_documentation() || v4.octets()[0] == 100,
        IpAddr::V6(v6) => (v6.segments()[0] & 0xfe00) == 0xfc00,
    }
}

/// Reaches for hosts on port 443. None when one is out of reach; else a list, as it stands in a rule file, of those
/// that lie at private addresses.
pub fn registries(hosts: &[&str]) -> Option<String> {
    let mut private = Vec::new();
    for host in hosts {
        let mut addresses = (*host, 443).to_socket_addrs().ok()?;
        let reached = addresses.find(|address| TcpStream::connect_timeout(address, Duration::from_secs(3)).is_ok())?;
        if is_not_public(reached.ip()) {
            private.push(format!("\"{host}\""));
        }
    }
    Some(format!("[{}]", private.join(", ")))
}
