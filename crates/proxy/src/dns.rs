//! DNS inside the fence: answers which names may be reached, and nothing leaves by it.
//!
//! Answers: an `A` question for a name that may be looked up gets an address of the gate's own that stands for the
//! name; every other name does not exist.
//! Promises: P1 (each name is asked about as `resolve NAME`, so what was tried is on record), P4, P5.
//! Trust: messages come from the agent, which may hide data in the names. Reading them is hickory-proto's.
//! Not here: real look-ups (`names`), made only when something is dialled.
//! See: RFC 1035 section 4, RFC 6761 section 6.3 (localhost), RFC 7766 (TCP).

use std::net::Ipv4Addr;

use bailiwick_model::{Code, Host};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use crate::dial::Gate;
use crate::limits;

impl Gate {
    /// Answers one message; none for what deserves no answer (no whole header, or an answer itself).
    pub(crate) async fn answer_dns(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (id, is_answer) = match bytes {
            [high, low, flags, ..] if bytes.len() >= 12 => (u16::from_be_bytes([*high, *low]), flags & 0x80 != 0),
            _ => return None,
        };
        if is_answer {
            return None;
        }
        let failed = |code| Message::error_msg(id, OpCode::Query, code).to_vec().ok();
        if bytes.len() > limits::DNS_BYTES {
            return failed(ResponseCode::FormErr);
        }
        let Ok(message) = Message::from_vec(bytes) else {
            return failed(ResponseCode::FormErr);
        };
        let [query] = message.queries.as_slice() else {
            return failed(ResponseCode::FormErr);
        };
        let odd = message.metadata.message_type != MessageType::Query || !message.answers.is_empty();
        if odd || !message.authorities.is_empty() {
            return failed(ResponseCode::FormErr);
        }
        if message.metadata.op_code != OpCode::Query || query.query_class() != DNSClass::IN {
            return failed(ResponseCode::NotImp);
        }
        let (code, address) = self.look_up(query).await;
        let mut answer = Message::response(id, OpCode::Query);
        answer.metadata.recursion_desired = message.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.metadata.response_code = code;
        answer.add_query(query.clone());
        if let Some(address) = address {
            let data = RData::A(A(address));
            answer.add_answer(Record::from_rdata(query.name().clone(), limits::DNS_TTL, data));
        }
        answer.to_vec().ok()
    }

    async fn look_up(&self, query: &Query) -> (ResponseCode, Option<Ipv4Addr>) {
        let text = query.name().to_ascii();
        let host = match Host::parse(&text) {
            Ok(host @ Host::Name(_)) => host,
            // A name that is spelled like an address stands in no zone.
            Ok(Host::Address(_)) => return (ResponseCode::NXDomain, None),
            Err(fault) => {
                let what = format!("resolve {text}");
                self.channel
                    .refuse(Code::MalformedRequest, &what, &fault.to_string())
                    .await;
                return (ResponseCode::NXDomain, None);
            }
        };
        if query.query_type() == RecordType::PTR {
            return (ResponseCode::NXDomain, None);
        }
        let wants_address = query.query_type() == RecordType::A;
        if host.is_localhost() {
            return (ResponseCode::NoError, wants_address.then_some(Ipv4Addr::LOCALHOST));
        }
        // A resolver gives up after seconds, long before a person has answered.
        match self.ask_resolve(&host, None).await {
            Ok(effect) => {
                effect.settle(true, "answered inside the fence");
                let address = wants_address.then(|| self.synthetic_address(&host)).flatten();
                (ResponseCode::NoError, address)
            }
            // A client believes that there is nobody to answer, and may try again.
            Err(refused) if refused.code == Code::MediatorUnavailable => (ResponseCode::ServFail, None),
            // REFUSED would say it better, but musl waits five seconds for another server after it, and glibc calls it
            // a failure of the moment, after which programs try again. A name that does not exist ends it at once.
            Err(_) => (ResponseCode::NXDomain, None),
        }
    }

    fn synthetic_address(&self, host: &Host) -> Option<Ipv4Addr> {
        Some(self.synthetic.lock().ok()?.address_of(host))
    }
}
