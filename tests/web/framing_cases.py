"""Raw requests with ambiguous and with plain framing, and the status of each.

Sources: RFC 9112, llhttp's strict mode, and known disagreements of proxies and servers.
"""

from random import Random

GET = b"GET /api/boot HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /api/login HTTP/1.1\r\nHost: x\r\nX-FW-CSRF: 1\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"

REFUSED: dict[str, tuple[bytes, int]] = {
    # Where the body ends: RFC 9112 6.1, 6.3, and RFC 9110 8.6.
    "length and chunks": (CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n", 400),
    "chunks and length": (
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "one length twice": (POST + b"Content-Length: 2\r\ncontent-length: 2\r\n\r\n{}", 400),
    "a list of lengths": (POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
    "a length with a sign": (POST + b"Content-Length: +2\r\n\r\n{}", 400),
    "a negative length": (POST + b"Content-Length: -2\r\n\r\n{}", 400),
    "a hexadecimal length": (POST + b"Content-Length: 0x2\r\n\r\n{}", 400),
    "a length with an underscore": (POST + b"Content-Length: 1_0\r\n\r\n{}", 400),
    "an empty length": (POST + b"Content-Length:\r\n\r\n", 400),
    "a length beyond any": (POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "chunks in HTTP/1.0": (CHUNKED.replace(b"1.1", b"1.0") + b"\r\n0\r\n\r\n", 400),
    "another coding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "chunks twice": (CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
    "a coding with a parameter": (POST + b"Transfer-Encoding: chunked;x=y\r\n\r\n0\r\n\r\n", 501),
    "an unknown coding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    "a coding behind a control": (POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    # The format of chunks: RFC 9112 7.1.
    "a chunk of another size": (CHUNKED + b"\r\n3\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk without its end": (CHUNKED + b"\r\n2\r\n{}0\r\n\r\n", 400),
    "a chunk size with a sign": (CHUNKED + b"\r\n+2\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk size in 0x": (CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk size with a lone LF": (CHUNKED + b"\r\n2\n{}\r\n0\r\n\r\n", 400),
    "a chunk extension with a lone LF": (CHUNKED + b"\r\n2;\n{}\r\n0\r\n\r\n", 400),
    "a chunk extension with a lone CR": (CHUNKED + b"\r\n2;a\rb\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk extension that begins with a lone CR": (
        CHUNKED + b"\r\n1;a\r\n{\r\n1;\ra\r\n}\r\n0\r\n\r\n",
        400,
    ),
    "a lone CR behind a last chunk": (CHUNKED + b"\r\n2\r\n{}\r\n0;\ra\r\n\r\n", 400),
    "a chunk that spills": (CHUNKED + b"\r\n2\r\n{}XX0\r\n\r\n", 400),
    "a last chunk with a lone LF": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\n\n", 400),
    "a trailer section with lone LFs": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\n\n", 400),
    "a trailer with a lone LF": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\nC: d\r\n\r\n", 400),
    "a trailer with a lone CR": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\rC: d\r\n\r\n", 400),
    "a trailer that goes on": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\r\n c\r\n\r\n", 400),
    "a trailer that goes on after a tab": (
        CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\r\n\tc: d\r\n\r\n",
        400,
    ),
    "a trailer section that begins with a blank": (
        CHUNKED + b"\r\n2\r\n{}\r\n0\r\n A: b\r\n\r\n",
        400,
    ),
    # The ends and the begins of lines: RFC 9112 2.2, 5.1, 5.2.
    "lone LFs": (GET.replace(b"\r\n", b"\n") + b"\n", 400),
    "a lone LF among others": (GET + b"A: b\nC: d\r\n\r\n", 400),
    "a lone CR": (GET + b"A: b\rC: d\r\n\r\n", 400),
    "a line that goes on": (GET + b"A: b\r\n c\r\n\r\n", 400),
    "a line that goes on after a tab": (GET + b"A: b\r\n\tc\r\n\r\n", 400),
    "a length that goes on": (POST + b"Content-Length: 1\r\n 0\r\n\r\n{}", 400),
    "a blank before the colon": (POST + b"Content-Length : 2\r\n\r\n{}", 400),
    "a blank before the name": (b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    "no name": (GET + b": b\r\n\r\n", 400),
    "no colon": (GET + b"A b\r\n\r\n", 400),
    "a NUL": (GET + b"A: b\0c\r\n\r\n", 400),
    "an empty line first": (b"\r\n" + GET + b"\r\n", 400),
    # The request line: RFC 9112 3.
    "no version": (b"GET /api/boot\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /api/boot HTTP/0.9\r\nHost: x\r\n\r\n", 505),
    "HTTP/1.2": (b"GET /api/boot HTTP/1.2\r\nHost: x\r\n\r\n", 505),
    "HTTP/2.0": (b"GET /api/boot HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/9.9": (b"GET /api/boot HTTP/9.9\r\nHost: x\r\n\r\n", 505),
    "HTTP/1.10": (b"GET /api/boot HTTP/1.10\r\nHost: x\r\n\r\n", 400),
    "another protocol": (b"GET /api/boot RTSP/1.0\r\nHost: x\r\n\r\n", 400),
    "http in lower case": (b"GET /api/boot http/1.1\r\nHost: x\r\n\r\n", 400),
    "two blanks": (b"GET  /api/boot HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a tab for a blank": (b"GET\t/api/boot HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a blank in the target": (b"GET /api/boot x HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a target that is not ASCII": (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "no host": (b"GET /api/boot HTTP/1.1\r\n\r\n", 400),
    "two hosts": (GET + b"Host: y\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    # RFC 9112 3.2: a Host that is no host and port.
    "two hosts in one": (b"GET /api/boot HTTP/1.1\r\nHost: x, y\r\n\r\n", 400),
    "a host with a blank": (b"GET /api/boot HTTP/1.1\r\nHost: x y\r\n\r\n", 400),
    "a host with a path": (b"GET /api/boot HTTP/1.1\r\nHost: x/y\r\n\r\n", 400),
    "a host with a user": (b"GET /api/boot HTTP/1.1\r\nHost: a@x\r\n\r\n", 400),
    "a host with a scheme": (b"GET /api/boot HTTP/1.1\r\nHost: http://x\r\n\r\n", 400),
    "a host with a port that is no number": (
        b"GET /api/boot HTTP/1.1\r\nHost: x:y\r\n\r\n",
        400,
    ),
    "an IPv6 address without brackets": (b"GET /api/boot HTTP/1.1\r\nHost: ::1\r\n\r\n", 400),
    "a host that is not ASCII": (b"GET /api/boot HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n", 400),
    # Sizes
    "a head of 17 KiB": (GET + b"A: " + b"b" * 17 * 1024 + b"\r\n\r\n", 431),
    "a head that does not end": (GET + b"A: " + b"b" * 17 * 1024, 431),
    "a request line of 17 KiB": (
        b"GET /" + b"b" * 17 * 1024 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        431,
    ),
}

TAKEN: dict[str, tuple[bytes, int]] = {
    "blanks around a length": (POST + b"Content-Length: \t 2 \t\r\n\r\n{}", 400),
    "chunks in capitals": (
        POST + b"Transfer-Encoding: CHUNKED\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        400,
    ),
    "a chunk extension": (CHUNKED + b"\r\n2;a=b\r\n{}\r\n0\r\n\r\n", 400),
    "leading zeros": (CHUNKED + b"\r\n0002\r\n{}\r\n000\r\n\r\n", 400),
    "a trailer": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\nA: b\r\n\r\n", 400),
    "a trailer section of many lines": (
        CHUNKED + b"\r\n2\r\n{}\r\n0\r\n" + b"A: b\tc\r\nD:\r\n" * 50 + b"\r\n",
        400,
    ),
    "an empty host": (b"GET /api/boot HTTP/1.1\r\nHost:\r\n\r\n", 200),
    "a host with a port": (b"GET /api/boot HTTP/1.1\r\nHost: a_b-c.X.:080\r\n\r\n", 200),
    "a host with an empty port": (b"GET /api/boot HTTP/1.1\r\nHost: x:\r\n\r\n", 200),
    "an IPv6 address": (b"GET /api/boot HTTP/1.1\r\nHost: [fe80::1%25eth0]:8\r\n\r\n", 200),
    "a length of nothing": (GET + b"Content-Length: 0\r\n\r\n", 200),
    "a body that nobody reads": (GET + b"Content-Length: 2\r\n\r\n{}", 200),
    "a head of 15 KiB": (GET + b"A: " + b"b" * 15 * 1024 + b"\r\n\r\n", 200),
    "a CR in a chunk": (CHUNKED + b"\r\n4\r\n{\r\r}\r\n0\r\n\r\n", 400),
    "the target of a proxy": (b"GET http://x/api/boot HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    "another target of a proxy": (
        b"GET HTTPS://[::1]:8/api/boot?x=1 HTTP/1.1\r\nHost: x\r\n\r\n",
        400,
    ),
    "the target of a proxy with a user": (
        b"GET http://a@x/api/boot HTTP/1.1\r\nHost: x\r\n\r\n",
        404,
    ),
    "the target of a tunnel": (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "no target": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404),
}

PIECES = (
    *(b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b";", b",", b"\0", b"\x0b", b"0", b"5", b"A", b"x"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: y\r\n", b"\r\n\r\n"),
    *(b"0\r\n\r\n", b"HTTP/1.0", b"Connection: close\r\n", b"Expect: 100-continue\r\n"),
)


def mutated(random: Random, data: bytes) -> bytes:
    """Return `data` with pieces that matter to framing inserted, and bytes left out or repeated."""
    for _ in range(random.randint(1, 3)):
        at, kind = random.randrange(len(data) + 1), random.random()
        if kind < 0.6:
            data = data[:at] + random.choice(PIECES) + data[at:]
        elif kind < 0.8:
            data = data[:at] + data[at + random.randint(1, 2) :]
        else:
            end = random.randrange(at, len(data) + 1)
            data = data[:end] + data[at:end] + data[end:]
    return data
