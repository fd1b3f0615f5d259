//! The server that all ways lead to: TLS, HTTP/1.1 and HTTP/2, `/N` answers with N bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bailiwick_testkit::Root;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// So much is handed over at a time.
const PIECE: usize = 64 * 1024;
static ZEROS: [u8; PIECE] = [b'0'; PIECE];

struct Zeros(u64);

impl Body for Zeros {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.0.min(PIECE as u64);
        if piece == 0 {
            return Poll::Ready(None);
        }
        self.0 -= piece;
        let piece = ZEROS.get(..piece as usize).unwrap_or_default();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0 == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Zeros>, Infallible> {
    let bytes = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
    Ok(Response::new(Zeros(bytes)))
}

/// Serves on a free port of the loopback, in a thread of its own that ends with this process.
pub fn serve(root: &Root, name: &str) -> SocketAddr {
    let mut config = Arc::unwrap_or_clone(root.serving(&[name]));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            tell.send(listener.local_addr().expect("an address"))
                .expect("somebody waits");
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let _ = stream.set_nodelay(true);
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let io = TokioIo::new(stream);
                    if two {
                        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        builder.initial_stream_window_size(1 << 20);
                        let _ = builder.serve_connection(io, service_fn(answer)).await;
                    } else {
                        let builder = hyper::server::conn::http1::Builder::new();
                        let _ = builder.serve_connection(io, service_fn(answer)).await;
                    }
                });
            }
        });
    });
    told.recv().expect("the server starts")
}
