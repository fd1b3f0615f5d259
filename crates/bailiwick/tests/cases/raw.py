"""Requests as they are spelled, with nothing made right: raw.py [--keep] METHOD,AUTHORITY,PATH ...

Through the proxy of the fence where there is one, else straight to the host. Prints `STATUS METHOD,AUTHORITY,PATH`.
`--keep` sends all over one connection.
"""

import os
import socket
import sys

keep = "--keep" in sys.argv
inside = "BAILIWICK" in os.environ
connection = None
for spec in [word for word in sys.argv[1:] if word != "--keep"]:
    method, authority, path = spec.split(",", 2)
    try:
        if connection is None:
            there = ("127.0.0.1", 3128) if inside else (authority.split("@")[-1].split(":")[0].rstrip("."), 80)
            connection = socket.create_connection(there, 10).makefile("rwb")
        if method == "CONNECT":
            target = authority
        else:
            target = f"http://{authority}{path}" if inside else path
        host = authority if keep or "@" not in authority else authority.split("@")[-1]
        end = "" if keep else "connection: close\r\n"
        connection.write(f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n{end}content-length: 0\r\n\r\n".encode())
        connection.flush()
        status = connection.readline().decode().split(" ")[1]
        length = 0
        while (line := connection.readline().decode().strip()):
            if line.lower().startswith("content-length:"):
                length = int(line.split(":")[1])
        connection.read(length)
    except (OSError, IndexError) as fault:
        status = f"{type(fault).__name__}"
        connection = None
    print(status, spec)
    if not keep:
        connection = None
