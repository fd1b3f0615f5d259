"""A small internet for one network namespace: DNS, HTTP, TLS and two bare ports, each of which writes down what it hears.

Usage: world.py FOLDER, as the first program of the namespace that listens. FOLDER gets `heard` (a line for each event).
Every name of `.test` exists but those that hold `leak`; `b.example.test` has an address of its own.
"""

import http.server
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import threading

FOLDER = sys.argv[1]
ADDRESSES = {"b.example.test": "93.184.215.15"}
OTHERS = "93.184.215.14"
LOCK = threading.Lock()


def heard(*words):
    with LOCK, open(os.path.join(FOLDER, "heard"), "a") as file:
        file.write(" ".join(words) + "\n")


def answer(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin1").lower())
        at += 1 + query[at]
    name, question = ".".join(labels), query[12 : at + 5]
    heard("dns", name)
    exists = name.endswith(".test") and "leak" not in name
    address = question[-4:] == b"\0\1\0\1" and exists
    head = query[:2] + bytes([0x81, 0x80 if exists else 0x83, 0, 1, 0, int(address), 0, 0, 0, 0])
    record = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(ADDRESSES.get(name, OTHERS))
    return head + question + (record if address else b"")


def dns(server):
    while True:
        query, peer = server.recvfrom(4096)
        server.sendto(answer(query), peer)


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        length = int(self.headers.get("content-length") or 0)
        self.rfile.read(length)
        host = (self.headers.get("host") or "-").split(":")[0].lower().rstrip(".")
        heard("http", host, self.command, self.path)
        hop = {
            ("a.example.test", "/start"): "http://b.example.test/next",
            ("b.example.test", "/next"): "http://a.example.test/end",
        }.get((host, self.path))
        body = b"REACHED\n"
        self.send_response(302 if hop else 200)
        if hop:
            self.send_header("location", hop)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any

    def log_message(self, *_):
        pass


class Threaded(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


def tls():
    key, certificate = os.path.join(FOLDER, "key.pem"), os.path.join(FOLDER, "certificate.pem")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test".split()
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda _, name, __: heard("tls", name or "-")
    server = Threaded(("0.0.0.0", 443), Site)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def bare(server, port):
    while True:
        connection, _ = server.accept()
        heard("tcp", str(port))
        connection.close()


# All listen before anybody is told that they do.
resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
resolver.bind(("192.0.2.53", 53))
own, far = socket.create_server(("127.0.0.1", 8099)), socket.create_server(("93.184.215.15", 3128))
servers = [
    tls().serve_forever,
    Threaded(("0.0.0.0", 80), Site).serve_forever,
    lambda: dns(resolver),
    lambda: bare(own, 8099),
    lambda: bare(far, 3128),
]
for serve in servers:
    threading.Thread(target=serve, daemon=True).start()
open(os.path.join(FOLDER, "heard"), "w").close()
open(os.path.join(FOLDER, "ready"), "w").close()
threading.Event().wait()
