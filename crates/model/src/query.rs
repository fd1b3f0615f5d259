//! The query of a URL, parameter by parameter.
//!
//! Promises: P5 (one reading, or none: what servers may read in two ways is refused). Trust: the text comes from the agent,
//! which wants a parameter to be passed over here and read there.
//! See: WHATWG URL, section 5 (`application/x-www-form-urlencoded`).

/// Most parameters of one query.
const MAX: usize = 256;

/// Says why a query cannot be read for sure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It holds a `;`, at which some servers divide parameters and others do not.
    #[error("a `;` divides parameters for some servers only")]
    Semicolon,
    /// A percent sign has not two digits behind it, or what they say is no text.
    #[error("a parameter is not encoded text")]
    Encoding,
    /// One name stands twice: servers take the first, the last, or both.
    #[error("`{0}` stands twice")]
    Twice(String),
    /// There are too many parameters.
    #[error("there are more than {MAX} parameters")]
    Many,
}

/// The parameters of a query, decoded, in the order in which they stand.
pub fn parameters(query: &str) -> Result<Vec<(String, String)>, QueryError> {
    if query.contains(';') {
        return Err(QueryError::Semicolon);
    }
    let mut found: Vec<(String, String)> = Vec::new();
    for piece in query.split('&').filter(|piece| !piece.is_empty()) {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        if found.iter().any(|(known, _)| *known == name) {
            return Err(QueryError::Twice(name));
        }
        if found.len() >= MAX {
            return Err(QueryError::Many);
        }
        found.push((name, value));
    }
    Ok(found)
}

/// Decodes one name or value: `+` is a blank.
fn decoded(text: &str) -> Result<String, QueryError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err(QueryError::Encoding);
                };
                u8::try_from(high << 4 | low).map_err(|_| QueryError::Encoding)?
            }
            other => other,
        });
    }
    String::from_utf8(out).map_err(|_| QueryError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_parameters_are_read_in_one_way_or_not_at_all() {
        let read = |query: &str| {
            let pairs = parameters(query)?;
            Ok(pairs
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect())
        };
        let ok = |pairs: &[&str]| Ok(pairs.iter().map(ToString::to_string).collect::<Vec<String>>());
        assert_eq!(read(""), ok(&[]));
        assert_eq!(read("q=a+b%2Bc&page=2"), ok(&["q=a b+c", "page=2"]));
        assert_eq!(read("&&a&b=&c=d=e"), ok(&["a=", "b=", "c=d=e"]));
        assert_eq!(read("%71=%C3%A9"), ok(&["q=é"]));
        assert_eq!(read("a=1;b=2"), Err(QueryError::Semicolon));
        assert_eq!(read("a=%"), Err(QueryError::Encoding));
        assert_eq!(read("a=%zz"), Err(QueryError::Encoding));
        assert_eq!(read("a=%FF"), Err(QueryError::Encoding));
        assert_eq!(read("a=1&%61=2"), Err(QueryError::Twice("a".into())));
        let many: Vec<String> = (0..=MAX).map(|number| format!("p{number}")).collect();
        assert_eq!(read(&many.join("&")), Err(QueryError::Many));
    }

    proptest::proptest! {
        #[test]
        fn reading_never_panics_and_loses_no_parameter(query in "[a-c=&%+;0-9é]{0,40}") {
            if let Ok(pairs) = parameters(&query) {
                let pieces = query.split('&').filter(|piece| !piece.is_empty()).count();
                proptest::prop_assert_eq!(pairs.len(), pieces);
            }
        }
    }
}
