//! Java's key stores: certificates more.
//!
//! A store of the kind JKS is a count, that many entries, and a digest over both and a password. The password of the stores that
//! come with Java and with systems is known to all; a store with another one is the person's own, and is left alone.
//! Every Java reads this kind, also where its own is PKCS #12 (`keystore.type.compat`).

use sha1::{Digest, Sha1};

const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
/// The only version that is written.
const VERSION: u32 = 2;
/// An entry that is a certificate to be believed.
const CERTIFICATE: u32 = 2;
const PASSWORD: &str = "changeit";
/// What stands between password and store in what the digest is over.
const SALT: &[u8] = b"Mighty Aphrodite";
const HEAD: usize = 12;
const DIGEST: usize = 20;

fn digest(body: &[u8]) -> [u8; DIGEST] {
    let mut hash = Sha1::new();
    for unit in PASSWORD.encode_utf16() {
        hash.update(unit.to_be_bytes());
    }
    hash.update(SALT);
    hash.update(body);
    hash.finalize().into()
}

/// A store that has the password which all know.
#[derive(Debug)]
pub struct KeyStore {
    bytes: Vec<u8>,
    count: u32,
}

impl KeyStore {
    /// Reads a store.
    pub fn read(bytes: Vec<u8>) -> Result<Self, String> {
        let end = bytes.len().saturating_sub(DIGEST);
        let (body, sum) = bytes.split_at_checked(end).unwrap_or_default();
        let head = body.get(..HEAD).ok_or("it is no key store of the kind JKS")?;
        let number = |from: usize| -> Option<u32> {
            let bytes = head.get(from..from.saturating_add(4))?;
            bytes.try_into().ok().map(u32::from_be_bytes)
        };
        if !head.starts_with(&MAGIC) || number(4) != Some(VERSION) {
            return Err("it is no key store of the kind JKS".into());
        }
        if sum != digest(body) {
            return Err("it has a password of its own".into());
        }
        let count = number(8).unwrap_or(0);
        Ok(Self { bytes, count })
    }

    fn entries(&self) -> &[u8] {
        let end = self.bytes.len().saturating_sub(DIGEST);
        self.bytes.get(HEAD..end).unwrap_or_default()
    }

    /// The store with these certificates (DER) more, each under its name.
    pub fn with(&self, more: &[(String, Vec<u8>)]) -> Result<Vec<u8>, String> {
        let count = u32::try_from(more.len())
            .ok()
            .and_then(|more| self.count.checked_add(more));
        let count = count.ok_or("it is full")?;
        let entries = self.entries();
        let mut all = Vec::with_capacity(entries.len().saturating_add(64 * 1024));
        all.extend(MAGIC);
        all.extend(VERSION.to_be_bytes());
        all.extend(count.to_be_bytes());
        all.extend(entries);
        for (alias, certificate) in more {
            let name = u16::try_from(alias.len()).map_err(|_| "a name is too long")?;
            let length = u32::try_from(certificate.len()).map_err(|_| "a certificate is too long")?;
            all.extend(CERTIFICATE.to_be_bytes());
            all.extend(name.to_be_bytes());
            all.extend(alias.as_bytes());
            // When it was made, in milliseconds: nobody looks.
            all.extend(0u64.to_be_bytes());
            all.extend(5u16.to_be_bytes());
            all.extend(b"X.509");
            all.extend(length.to_be_bytes());
            all.extend(certificate);
        }
        let sum = digest(&all);
        all.extend(sum);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(store: &[u8], more: &[(String, Vec<u8>)]) -> Result<Vec<u8>, String> {
        KeyStore::read(store.to_vec())?.with(more)
    }

    fn empty() -> Vec<u8> {
        let body = [MAGIC, 2u32.to_be_bytes(), 0u32.to_be_bytes()].concat();
        [body.as_slice(), &digest(&body)].concat()
    }

    #[test]
    fn a_store_gains_one_certificate_and_stays_whole() {
        let more = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
        let one = with(&empty(), &[more("first", b"der")]).unwrap();
        let two = with(&one, &[more("second", b"more")]).unwrap();
        let both = [more("first", b"der"), more("second", b"more")];
        assert_eq!(with(&empty(), &both).unwrap(), two);
        assert_eq!(two[8..12], 2u32.to_be_bytes());
        assert!(two.windows(5).any(|part| part == b"first") && two.windows(6).any(|part| part == b"second"));
        for bad in [
            &b""[..],
            b"\xfe\xed\xfe\xed",
            &empty()[1..],
            b"0\x82\x01\x02 is PKCS #12",
        ] {
            assert!(with(bad, &[]).unwrap_err().contains("JKS"));
        }
        let mut foreign = empty();
        foreign[31] ^= 1;
        assert!(with(&foreign, &[]).unwrap_err().contains("password"));
    }
}
