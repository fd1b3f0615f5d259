//! The tool gate against a mediator that answers by a closure, with servers and clients that write their lines by hand.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod chosen;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod offers;
#[cfg(test)]
mod pinned;
#[cfg(test)]
mod reversed;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod web;
#[cfg(test)]
mod world;
