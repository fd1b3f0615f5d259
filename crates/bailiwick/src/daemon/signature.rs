//! AWS Signature Version 4: made here, so that the key stays in this process.
//!
//! Promises: P9. What is signed is the request that was allowed: method and URL are those of its permit, and only the headers
//! and the hash of the body are the gate's to say.
//! See: `aws-sigv4`, which does the work.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
};
use aws_sigv4::sign::v4;
use bailiwick_gate::{ToSign, Use};

/// Signs a request: the headers that carry the signature.
pub fn sign(
    wanted: &Use,
    sign: &ToSign,
    key: &[u8],
    (service, region, id): (&str, &str, &str),
) -> Result<Vec<(String, String)>, String> {
    let key = std::str::from_utf8(key).map_err(|_| "the key is not text".to_owned())?;
    let identity = Credentials::from_keys(id, key, None).into();
    let mut settings = SigningSettings::default();
    let s3 = service == "s3";
    if s3 {
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(SystemTime::now())
        .settings(settings)
        .build()
        .map_err(|e| e.to_string())?
        .into();
    let body = match sign.body.as_str() {
        "UNSIGNED-PAYLOAD" => SignableBody::UnsignedPayload,
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => SignableBody::StreamingUnsignedPayloadTrailer,
        digest if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            SignableBody::Precomputed(digest.to_owned())
        }
        _ => return Err("the hash of the body is none".into()),
    };
    let url = wanted.url.to_string();
    // Where the hash of the body is a header that is signed, the library adds it.
    let own = |name: &str| s3 && name == "x-amz-content-sha256";
    let headers = sign.headers.iter().filter(|(name, _)| !own(name));
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
    let request = SignableRequest::new(wanted.method.as_str(), url, headers, body).map_err(|e| e.to_string())?;
    let (instructions, _) = aws_sigv4::http_request::sign(request, &parameters)
        .map_err(|e| e.to_string())?
        .into_parts();
    let lines = instructions
        .headers()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(lines.collect())
}
