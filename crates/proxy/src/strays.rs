//! Datagrams that go nowhere: where were they meant to go?
//!
//! Promises: P10 (each target is on record, once in a while). Trust: the bytes are heads as the fence's network has them;
//! what stands in them was chosen by the agent, which may send as many as it likes: more than fit are not looked at, and
//! of many targets a bounded number is told.
//! Not here: that they go nowhere (`fence`: there is no network to go to).
//! See: RFC 791 section 3.1, RFC 8200 section 3, RFC 768.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_model::Code;
use tokio::net::UdpSocket;

use crate::dial::Gate;
use crate::limits;

/// Where a datagram was meant to go.
fn target_of(head: &[u8]) -> Option<SocketAddr> {
    const FIXED: usize = 40;
    let (address, length): (IpAddr, usize) = match head.first()? >> 4 {
        4 => {
            let address = Ipv4Addr::from(*head.get(16..)?.first_chunk::<4>()?);
            (address.into(), usize::from(head.first()? & 0xf).checked_mul(4)?)
        }
        6 => (Ipv6Addr::from(*head.get(24..)?.first_chunk::<16>()?).into(), FIXED),
        _ => return None,
    };
    let port = head.get(length.checked_add(2)?..)?.first_chunk::<2>()?;
    Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
}

/// Puts the targets of stray datagrams on record. The socket only looks: it is no UDP socket, but read like one.
pub(crate) async fn watch_strays(gate: Arc<Gate>, socket: UdpSocket) {
    let mut told: HashMap<SocketAddr, Instant> = HashMap::new();
    loop {
        let mut head = [0u8; 68];
        let got = socket.recv(&mut head).await;
        let Ok(got) = got else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Some(target) = head.get(..got).and_then(target_of) else {
            continue;
        };
        told.retain(|_, when| when.elapsed() < limits::STRAY_TIME);
        if told.len() >= limits::STRAYS || told.contains_key(&target) {
            continue;
        }
        told.insert(target, Instant::now());
        let what = format!("datagram to {target}");
        gate.channel
            .refuse(Code::NoRule, &what, "no datagram leaves the fence")
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_stands_in_the_heads() {
        let mut four = vec![0x45, 0, 0, 29, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 8, 8, 8, 8];
        four.extend([0x9c, 0x40, 0, 53, 0, 9, 0, 0]);
        assert_eq!(target_of(&four), Some("8.8.8.8:53".parse().unwrap()));
        let mut options = four.clone();
        options[0] = 0x46;
        options.splice(20..20, [1, 1, 1, 1]);
        assert_eq!(target_of(&options), Some("8.8.8.8:53".parse().unwrap()));
        let mut six = vec![0x60, 0, 0, 0, 0, 9, 17, 64];
        six.extend([0; 16]);
        six.extend("2606::1".parse::<Ipv6Addr>().unwrap().octets());
        six.extend([0x9c, 0x40, 0x01, 0xbb, 0, 9, 0, 0]);
        assert_eq!(target_of(&six), Some("[2606::1]:443".parse().unwrap()));
        for short in 0..24 {
            assert_eq!(target_of(&four[..short.min(23)]), None);
            assert_eq!(target_of(&six[..short]), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn p4_any_bytes_are_a_head_or_none(bytes in proptest::collection::vec(0u8..=255, 0..68)) {
            target_of(&bytes);
        }
    }
}
