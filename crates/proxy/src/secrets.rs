//! Secrets in the forward path: what is looked for in a request, what is put in, what is taken out of the answer.
//!
//! Promises: P9, P10 (each use is redeemed by its permit, and so on record), P5 (a redirect is a new request: what is put in
//! here goes to the host that was decided about, and no further).
//! Trust: request and answer are hostile. A value is held from its redemption until the answer has ended; a gate that is taken
//! over in that time has it, and can redeem what the mediator allows it.
//! Not here: which request may have which secret (the mediator), the single steps (`standin`, `inject`, `bodies`, `jar`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick_gate::{Redeemed, SecretValue, ToRedeem, ToSign};
use bailiwick_line::Effect;
use bailiwick_model::{Code, HttpUrl, Obligation, Place, SecretName};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Bytes};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::bodies::{self, Sent};
use crate::inject::{self, Unfit};
use crate::jar::Jar;
use crate::limits;
use crate::push::Received;
use crate::scrub::Forms;
use crate::standin::{Look, StandIn, StandIns};

/// What the gate knows of the secrets of its task: no value.
#[derive(Default)]
pub(crate) struct Secrets {
    stand_ins: StandIns,
    jar: Jar,
    /// Secrets whose last value a server did not take.
    unwelcome: Mutex<BTreeSet<SecretName>>,
}

/// Why a request with a secret does not go on.
pub(crate) struct Stopped {
    pub(crate) code: Code,
    pub(crate) why: String,
}

impl Stopped {
    /// What allowed the request was revoked.
    pub(crate) fn revoked() -> Self {
        stopped(Code::PermitRefused, bailiwick_line::REVOKED)
    }

    /// A stand-in was found in a body that was on its way.
    pub(crate) fn misused() -> Self {
        stopped(
            Code::StandInMisused,
            "a stand-in is in the body, where it does not belong",
        )
    }
}

fn stopped(code: Code, why: impl Into<String>) -> Stopped {
    Stopped { code, why: why.into() }
}

impl From<Unfit> for Stopped {
    fn from(unfit: Unfit) -> Self {
        stopped(Code::SecretUnkept, unfit.0)
    }
}

/// What an answer is to be looked through for.
pub(crate) struct Expected {
    forms: Forms,
    /// True when a secret was put in.
    injected: bool,
    /// The secrets whose values were put in.
    values: Vec<SecretName>,
    posted: bool,
    session: Option<HttpUrl>,
    misused: Arc<AtomicBool>,
}

impl Expected {
    /// Says, now or later, whether a stand-in in the body ended the request.
    pub(crate) fn misuse(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.misused)
    }

    /// True when it has happened.
    pub(crate) fn was_misused(&self) -> bool {
        self.misused.load(Ordering::Relaxed)
    }
}

impl Secrets {
    pub(crate) fn of(stand_ins: Vec<StandIn>) -> Self {
        Self {
            stand_ins: StandIns::of(stand_ins),
            jar: Jar::default(),
            unwelcome: Mutex::default(),
        }
    }

    fn unwelcome(&self) -> MutexGuard<'_, BTreeSet<SecretName>> {
        self.unwelcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks through the head of a request.
    pub(crate) fn look(&self, url: &HttpUrl, headers: &HeaderMap) -> Result<Look, String> {
        self.stand_ins.look(url, headers)
    }

    /// Puts the secrets of a permit into a request, and sees to it that no stand-in goes elsewhere.
    pub(crate) async fn put_in(
        &self,
        head: &mut hyper::http::request::Parts,
        body: Received,
        url: &HttpUrl,
        look: &Look,
        effect: &Effect,
        web_socket: bool,
    ) -> Result<(Sent, Expected), Stopped> {
        let mut expected = Expected {
            forms: Forms::none(),
            injected: false,
            values: Vec::new(),
            posted: head.method == Method::POST,
            session: look.session.then(|| url.clone()),
            misused: Arc::default(),
        };
        if self.stand_ins.is_empty() {
            return Ok((body.map_err(Into::into).boxed(), expected));
        }
        let mut permitted: Vec<(&SecretName, &Place)> = Vec::new();
        for obligation in effect.spent().obligations() {
            if let Obligation::Inject { secret, place } = obligation {
                permitted.push((secret, place));
            }
        }
        if let Some(secret) = look
            .sent
            .iter()
            .find(|sent| !permitted.iter().any(|(own, _)| own == sent))
        {
            let why = format!("the stand-in of secret:{secret} is not for this request");
            return Err(stopped(Code::StandInMisused, why));
        }
        let chosen = chosen(&permitted, look, &head.headers, url);
        if web_socket && (!chosen.is_empty() || look.session) {
            let why = "what comes over a web socket cannot be looked through, so no secret is put in";
            return Err(stopped(Code::SecretUnkept, why));
        }
        let body = self.body(head, body, &permitted, effect, &mut expected).await?;
        let mut target = Zeroizing::new(url.target());
        for (secret, place) in chosen {
            match place {
                Place::Signature { .. } => {
                    let sign = to_sign(head, body.whole())?;
                    self.sign(secret, sign, effect, &mut head.headers, &mut expected)
                        .await?;
                }
                _ => {
                    let value = self.value(secret, effect, &mut expected).await?;
                    let stand_in = self.stand_ins.text_of(secret).unwrap_or_default();
                    inject::into_head(place, value.bytes(), stand_in, &mut head.headers, &mut target)?;
                }
            }
        }
        if *target != url.target() {
            head.uri = target
                .parse::<Uri>()
                .map_err(|_| Unfit("the value cannot stand in a query"))?;
        }
        if look.session {
            self.jar.fill(url, &mut head.headers);
            self.jar.add_to(url, &mut expected.forms);
        }
        if expected.injected || look.session {
            // What is coded, or cut to parts that the client chooses, cannot be looked through.
            head.headers
                .insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            head.headers.remove(header::RANGE);
            head.headers.remove(header::IF_RANGE);
        }
        Ok((body.sent(), expected))
    }

    /// Reads a body as far as its place wants it, puts the secret in, and looks through the rest.
    async fn body(
        &self,
        head: &mut hyper::http::request::Parts,
        body: Received,
        permitted: &[(&SecretName, &Place)],
        effect: &Effect,
        expected: &mut Expected,
    ) -> Result<Outgoing, Stopped> {
        let place = permitted
            .iter()
            .find(|(_, place)| inject::is_in_body(place, &head.headers));
        let signed = permitted
            .iter()
            .any(|(_, place)| matches!(place, Place::Signature { .. }));
        let hashed = head.headers.contains_key("x-amz-content-sha256");
        let exact = body.size_hint().exact();
        let small = exact.is_some_and(|length| length <= limits::SMALL_BODY);
        if place.is_none() && !small && (!signed || hashed) {
            let forms = Arc::new(self.stand_ins.in_bodies(None));
            let misused = Arc::clone(&expected.misused);
            return Ok(Outgoing::Streamed(bodies::guarded(body, forms, misused)));
        }
        let limit = usize::try_from(limits::SECRET_BODY).unwrap_or(usize::MAX);
        let read = tokio::time::timeout(limits::HEAD_TIME, Limited::new(body, limit).collect()).await;
        let read = match read {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => {
                return Err(Unfit("the body in which a secret may stand is too large, or was broken off").into());
            }
            Err(_) => return Err(stopped(Code::LimitReached, "the body took too long")),
        };
        let trailers = read.trailers().cloned().unwrap_or_default();
        let sent = read.to_bytes();
        let mut filled = None;
        if let Some((secret, place)) = place {
            let stand_in = self.stand_ins.text_of(secret).unwrap_or_default();
            let within = !stand_in.is_empty() && sent.windows(stand_in.len()).any(|part| part == stand_in.as_bytes());
            if within {
                // Nothing is redeemed for a body that does not have it in its place.
                if inject::into_body(place, stand_in.as_bytes(), stand_in, &sent)?.is_none() {
                    return Err(misused(secret));
                }
                let value = self.value(secret, effect, expected).await?;
                filled = inject::into_body(place, value.bytes(), stand_in, &sent)?;
            }
        }
        let rest = filled.as_ref().map_or(sent.as_ref(), |body| body.as_slice());
        let forms = self.stand_ins.in_bodies(None);
        if forms.is_in(rest) || trailers.values().any(|value| forms.is_in(value.as_bytes())) {
            return Err(Stopped::misused());
        }
        head.headers.remove(header::TRANSFER_ENCODING);
        let bytes = filled.map_or(sent, |body| Bytes::from(body.to_vec()));
        if exact.is_none() || head.headers.contains_key(header::CONTENT_LENGTH) || !bytes.is_empty() {
            head.headers
                .insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        }
        Ok(Outgoing::Whole(bytes))
    }

    async fn value(
        &self,
        secret: &SecretName,
        effect: &Effect,
        expected: &mut Expected,
    ) -> Result<SecretValue, Stopped> {
        let wanted = ToRedeem {
            secret: secret.clone(),
            sign: None,
            unwelcome: self.unwelcome().remove(secret),
        };
        match effect.redeem(wanted).await {
            Ok(Redeemed::Value(value)) => {
                expected.values.push(secret.clone());
                let stand_in = self.stand_ins.text_of(secret).unwrap_or_default();
                expected.forms.add(value.bytes(), stand_in.as_bytes());
                expected.injected = true;
                Ok(value)
            }
            Ok(Redeemed::Signed(_)) => Err(stopped(Code::SecretUnkept, "a signature came for a value")),
            Err(code) => Err(stopped(code, format!("secret:{secret} could not be had"))),
        }
    }

    async fn sign(
        &self,
        secret: &SecretName,
        sign: ToSign,
        effect: &Effect,
        headers: &mut HeaderMap,
        expected: &mut Expected,
    ) -> Result<(), Stopped> {
        let wanted = ToRedeem {
            secret: secret.clone(),
            sign: Some(sign),
            unwelcome: false,
        };
        let lines = match effect.redeem(wanted).await {
            Ok(Redeemed::Signed(lines)) => lines,
            Ok(Redeemed::Value(_)) => return Err(stopped(Code::SecretUnkept, "a value came for a signature")),
            Err(code) => return Err(stopped(code, format!("secret:{secret} could not be had"))),
        };
        headers.remove("x-amz-security-token");
        for (name, text) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Unfit("the signature cannot be sent"))?;
            let mut value = HeaderValue::from_str(&text).map_err(|_| Unfit("the signature cannot be sent"))?;
            value.set_sensitive(true);
            if let Some((_, signature)) = text.split_once("Signature=") {
                expected.forms.add(signature.as_bytes(), b"");
            }
            headers.insert(name, value);
        }
        expected.injected = true;
        Ok(())
    }

    /// Takes what must stay here out of the head of an answer, and says how its body goes on.
    pub(crate) async fn receive<B>(
        &self,
        head: &mut hyper::http::response::Parts,
        body: B,
        expected: Expected,
    ) -> Result<Sent, Stopped>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin + Send + Sync + 'static,
        B::Error: Into<bodies::Broken>,
    {
        let mut expected = expected;
        if head.status == StatusCode::UNAUTHORIZED {
            // Where one of them is renewed, the next request has a new one.
            self.unwelcome().extend(expected.values.drain(..));
        }
        if let Some(url) = &expected.session {
            self.jar.keep(url, &mut head.headers);
            self.jar.add_to(url, &mut expected.forms);
        }
        if !expected.injected && expected.forms.is_empty() {
            return Ok(body.map_err(Into::into).boxed());
        }
        let coded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
        if head.headers.get_all(header::CONTENT_ENCODING).iter().any(coded) {
            let why = "the answer came in a coding, in which a secret could hide";
            return Err(stopped(Code::SecretUnkept, why));
        }
        bodies::scrub_head(&mut head.headers, &expected.forms);
        let forms = Arc::new(expected.forms);
        if !(expected.injected && expected.posted && is_json(&head.headers)) {
            return Ok(bodies::scrubbed(body, forms));
        }
        // A token service answers a login in a few lines: nothing of it goes on before they have been read.
        let mut body = body;
        let mut begun: Vec<u8> = Vec::new();
        let mut first = Vec::new();
        while begun.len() < limits::TOKEN_ANSWER {
            match body.frame().await {
                None => break,
                Some(Err(fault)) => {
                    let fault: bodies::Broken = fault.into();
                    return Err(stopped(
                        Code::UpstreamUnreachable,
                        format!("the answer broke off: {fault}"),
                    ));
                }
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        begun.extend_from_slice(data);
                    }
                    first.push(frame);
                }
            }
        }
        if inject::hands_out_a_login(&begun) {
            let why = "the server answered with a new login, which would be the agent's";
            return Err(stopped(Code::SecretUnkept, why));
        }
        Ok(bodies::scrubbed(bodies::Resumed::new(first, body), forms))
    }
}

/// A body on its way out.
enum Outgoing {
    Whole(Bytes),
    Streamed(Sent),
}

impl Outgoing {
    fn whole(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Streamed(_) => None,
        }
    }

    fn sent(self) -> Sent {
        match self {
            Self::Whole(bytes) => bodies::whole(bytes),
            Self::Streamed(body) => body,
        }
    }
}

fn misused(secret: &SecretName) -> Stopped {
    let why = format!("the stand-in of secret:{secret} is not in its place");
    stopped(Code::StandInMisused, why)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// The secrets that are put into the head: those whose stand-ins were sent, then, in places that are still empty, the first.
fn chosen<'a>(
    permitted: &[(&'a SecretName, &'a Place)],
    look: &Look,
    headers: &HeaderMap,
    url: &HttpUrl,
) -> Vec<(&'a SecretName, &'a Place)> {
    let mut found: Vec<(&SecretName, &Place)> = Vec::new();
    let same = |one: &Place, other: &Place| match (one, other) {
        (Place::Query { name }, Place::Query { name: other }) => name == other,
        _ => one.header().is_some() && one.header() == other.header(),
    };
    for (secret, place) in permitted {
        if look.sent.contains(secret) {
            found.push((secret, place));
        }
    }
    for (secret, place) in permitted.iter().filter(|(_, place)| place.is_added()) {
        let filled = match place {
            // A client signs with what it has: that is made anew.
            Place::Signature { .. } => look.own_login,
            Place::Query { name } => crate::standin::parameters(url).any(|(own, _)| own == *name),
            _ => place.header().is_some_and(|name| headers.contains_key(name)),
        };
        if !filled && !found.iter().any(|(_, own)| same(own, place)) {
            found.push((secret, place));
        }
    }
    // A signature covers what else stands in the head.
    found.sort_by_key(|(_, place)| matches!(place, Place::Signature { .. }));
    found
}

/// What a signature is made over: the headers that services want signed, and the hash of the body.
fn to_sign(head: &hyper::http::request::Parts, body: Option<&Bytes>) -> Result<ToSign, Unfit> {
    let is_signed = |name: &str| {
        let own = ["x-amz-date", "x-amz-security-token"].contains(&name);
        !own && (name == "host" || name == "content-type" || name == "content-md5" || name.starts_with("x-amz-"))
    };
    let mut headers = Vec::new();
    for (name, value) in &head.headers {
        if is_signed(name.as_str()) {
            let text = value
                .to_str()
                .map_err(|_| Unfit("a header that is signed is not text"))?;
            headers.push((name.as_str().to_owned(), text.to_owned()));
        }
    }
    let said = head
        .headers
        .get("x-amz-content-sha256")
        .and_then(|value| value.to_str().ok());
    let body = match (said, body) {
        (Some(said), _) if said.starts_with("STREAMING-AWS4-") => {
            return Err(Unfit("a body that is signed piece by piece cannot be signed here"));
        }
        (Some(said), _) => said.to_owned(),
        (None, Some(body)) => hex::encode(Sha256::digest(body)),
        (None, None) => return Err(Unfit("the body is too large to be signed")),
    };
    Ok(ToSign { headers, body })
}
