//! The network gate against a mediator that answers by a closure, with real sockets on the loopback.

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod dns;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod http;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod many;
#[cfg(test)]
mod revoked;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod spellings;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tunnels;
#[cfg(test)]
mod world;
