#!/usr/bin/env python3
"""A client of gemmd written from proto/protocol.md alone, with the msgpack package.

usage: wire_client.py SOCKET

Speaks every step of the specification to a running daemon and checks the answers. Shares no code
with the daemon or its C client: what the page leaves out would fail here. Exits 0 when all is
right; else 1, with the first thing that was wrong.
"""

import array
import fcntl
import mmap
import os
import socket
import struct
import sys

import msgpack

MAGIC = 0x444D4D47
HEADER = struct.Struct("<IBBHII")
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 0x0002
INVALID_ARGUMENT, NOT_FOUND, PROTOCOL = 1, 3, 14
LAST_ID = 4294967295
TIMEOUT_SECONDS = 60  # a cold daemon may still start its worker and compile


class Wrong(Exception):
    """The daemon did something other than the specification says."""


class Refused(Exception):
    """An error reply."""

    def __init__(self, error):
        super().__init__(f"{error['name']}: {error['message']}")
        self.code, self.argument, self.message = error["code"], error["argument"], error["message"]


def expect(condition, what):
    if not condition:
        raise Wrong(what)


class Connection:
    """Frames and messages, as under "Frames" and "Messages"."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.socket.connect(path)
        self.next_id = 1
        self.waiting = {}

    def close(self):
        self.socket.close()

    def send(self, method, fields=None, fds=()):
        """Sends a request; returns its id."""
        request_id, self.next_id = self.next_id, self.next_id + 1
        params = [] if fields is None else [fields]
        self.send_payload(msgpack.packb([0, request_id, method, params], use_bin_type=True), fds)
        return request_id

    def send_payload(self, payload, fds=()):
        frame = HEADER.pack(MAGIC, 1, 0, len(fds), len(payload), 0) + payload
        if fds:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
            sent = self.socket.sendmsg([frame], [rights])
            frame = frame[sent:]
        self.socket.sendall(frame)

    def receive_exactly(self, size, fds):
        data = b""
        while len(data) < size:
            part, control, flags, _ = self.socket.recvmsg(size - len(data), socket.CMSG_SPACE(16))
            for level, kind, value in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(value)
            expect(not flags & socket.MSG_CTRUNC, "descriptors were cut off")
            expect(part, "the daemon closed the connection")
            data += part
        return data

    def receive(self):
        """One reply as (id, error, result, descriptors)."""
        fds = array.array("i")
        header = self.receive_exactly(HEADER.size, fds)
        magic, version, flags, n_fds, length, reserved = HEADER.unpack(header)
        expect((magic, version, flags, reserved) == (MAGIC, 1, 0, 0), f"header {header.hex()}")
        expect(len(fds) == n_fds, f"{len(fds)} descriptors came, {n_fds} were announced")
        message = msgpack.unpackb(self.receive_exactly(length, fds), raw=False)
        expect(len(fds) == n_fds, "descriptors came behind a frame's first byte")
        expect(isinstance(message, list) and len(message) == 4 and message[0] == 1,
               f"not a reply: {message!r:.100}")
        return message[1], message[2], message[3], list(fds)

    def wait(self, request_id):
        """The result of a request, with its descriptors; replies come in any order."""
        while request_id not in self.waiting:
            answered, error, result, fds = self.receive()
            self.waiting[answered] = (error, result, fds)
        error, result, fds = self.waiting.pop(request_id)
        if error is not None:
            expect(set(error) >= {"code", "name", "message", "argument"}, f"error {error!r}")
            raise Refused(error)
        return result, fds

    def call(self, method, fields=None, fds=()):
        result, got = self.wait(self.send(method, fields, fds))
        for fd in got:
            os.close(fd)
        return result

    def refused(self, code, argument, method, fields=None):
        """A request that must be refused so."""
        try:
            self.call(method, fields)
        except Refused as refusal:
            expect((refusal.code, refusal.argument) == (code, argument),
                   f"{method}: {refusal} about {refusal.argument!r}; "
                   f"expected code {code} about {argument!r}")
            expect(refusal.message, f"{method}: a refusal without a sentence")
            return
        raise Wrong(f"{method} {fields!r:.80} was not refused")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


# A is 2 x 3, B is 3 x 2: small integers, so that every device gives the same bits.
A = floats(1, 2, 3, 4, 5, 6)
B = floats(7, 8, 9, 10, 11, 12)
D = floats(58, 64, 139, 154)
SHAPE = {"dtype": "fp32", "m": 2, "n": 2, "k": 3}


def say_hello(path):
    connection = Connection(path)
    hello = connection.call("hello", {"version": 1, "client": "wire_client.py"})
    expect(hello["version"] == 1, f"hello: version {hello['version']}")
    expect(hello["length_max"] == 16777216, f"hello: length_max {hello['length_max']}")
    expect(hello["in_flight_max"] == 256, f"hello: in_flight_max {hello['in_flight_max']}")
    expect(isinstance(hello["daemon"], str) and isinstance(hello["ready"], bool), f"{hello}")
    expect(hello["device_kind"] in ("cpu", "cuda", ""), f"device_kind {hello['device_kind']}")
    return connection


def check_hello_comes_first(path):
    connection = Connection(path)
    connection.refused(PROTOCOL, "", "status")
    connection.close()


def check_inline(connection):
    result = connection.call("gemm", {**SHAPE, "a": {"data": A}, "b": {"data": B}})
    expect(result["data"] == D, f"inline gemm: {result['data'].hex()}")
    expect(result["configuration"], "inline gemm: no configuration")
    for field in ("epoch", "queued_ns", "device_ns", "compile_seconds"):
        expect(result[field] >= 0, f"inline gemm: {field}")


def check_options(connection):
    """alpha, beta and C; transposition; column-major; leading dimension; batch with stride 0."""
    c = floats(1, 1, 1, 1)
    result = connection.call("gemm", {**SHAPE, "alpha": 2, "beta": -1.0, "a": {"data": A},
                                      "b": {"data": B}, "c": {"data": c}})
    expect(result["data"] == floats(115, 127, 277, 307), "alpha and beta")

    a_stored_transposed = floats(1, 4, 2, 5, 3, 6)
    result = connection.call("gemm", {**SHAPE, "trans_a": True, "b": {"data": B},
                                      "a": {"data": a_stored_transposed}})
    expect(result["data"] == D, "trans_a")

    result = connection.call("gemm", {**SHAPE, "order": "column",
                                      "a": {"data": a_stored_transposed},
                                      "b": {"data": floats(7, 9, 11, 8, 10, 12)}})
    expect(result["data"] == floats(58, 139, 64, 154), "order column")

    padded = floats(1, 2, 3, 99, 4, 5, 6)  # ld 4: the last row has no padding behind it
    result = connection.call("gemm", {**SHAPE, "a": {"data": padded, "ld": 4},
                                      "b": {"data": B}, "d": {"ld": 3}})
    expect(result["data"] == floats(58, 64, 0, 139, 154), "ld")

    result = connection.call("gemm", {**SHAPE, "batch": 2, "a": {"data": A, "stride": 0},
                                      "b": {"data": B + B}})
    expect(result["data"] == D + D, "batch")


def check_turns(connection):
    """Priority and deadline are taken; what is not under way cannot be cancelled."""
    result = connection.call("gemm", {**SHAPE, "priority": -1, "deadline_us": 60_000_000,
                                      "a": {"data": A}, "b": {"data": B}})
    expect(result["data"] == D, "priority and deadline")
    connection.refused(INVALID_ARGUMENT, "priority", "gemm", {**SHAPE, "priority": -2,
                                                              "a": {"data": A}, "b": {"data": B}})
    expect(connection.call("cancel", {"request": 4294967294}) == {"cancelled": False}, "cancel")


def check_many(connection):
    """One message, a reply for each product by its own id; a wrong one is refused alone."""
    good = {**SHAPE, "a": {"data": A}, "b": {"data": B}}
    first = connection.send("gemm_many", {"products": [good, {**good, "m": -1}, good]})
    expect(connection.wait(first)[0]["data"] == D, "first of many")
    try:
        connection.wait(first + 1)
        raise Wrong("a product with m = -1 was taken")
    except Refused as refusal:
        expect(refusal.argument == "m", f"{refusal}")
    expect(connection.wait(first + 2)[0]["data"] == D, "last of many")
    connection.next_id = first + 3
    connection.refused(INVALID_ARGUMENT, "products", "gemm_many", {"products": []})
    connection.refused(INVALID_ARGUMENT, "products", "gemm_many", {"products": [good] * 33})
    connection.refused(INVALID_ARGUMENT, "products", "gemm_many", {"products": [1]})


def check_empty(connection):
    connection.call("gemm", {"dtype": "fp32", "m": 0, "n": 2, "k": 3})
    result = connection.call("gemm", {"dtype": "fp32", "m": 2, "n": 2, "k": 0})
    expect(result["data"] == bytes(16), "k = 0 gives zeros")


def check_memfd(connection):
    """Own memory, registered: operands and result at offsets of one memfd."""
    size = 4096
    fd = os.memfd_create("wire_client", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
    with mmap.mmap(fd, size) as memory:
        memory[0:len(A)] = A
        memory[256:256 + len(B)] = B
        registered = connection.call("buffer.register", {"size": size, "writable": True}, [fd])
        expect(registered["kind"] == "host" and registered["size"] == size, f"{registered}")
        number = registered["buffer"]
        result = connection.call("gemm", {**SHAPE, "a": {"buffer": number},
                                          "b": {"buffer": number, "offset": 256},
                                          "d": {"buffer": number, "offset": 1024}})
        expect("data" not in result, "a result in a buffer came inline as well")
        expect(memory[1024:1024 + len(D)] == D, "gemm on a memfd")
        connection.call("buffer.free", {"buffer": number})
    os.close(fd)
    connection.refused(NOT_FOUND, "buffer", "buffer.free", {"buffer": number})


def check_device_buffer(connection):
    created = connection.call("buffer.create", {"kind": "device", "size": 1000})
    number = created["buffer"]
    expect(created["writable"] is True and created["kind"] == "device", f"{created}")

    read = connection.call("buffer.read", {"buffer": number, "length": 1000})
    expect(read["data"] == bytes(1000), "new memory is not zero")
    # Not waited for one by one: each sees what those before it wrote.
    requests = [
        connection.send("buffer.write", {"buffer": number, "data": A}),
        connection.send("buffer.write", {"buffer": number, "offset": 100, "data": B}),
        connection.send("gemm", {**SHAPE, "a": {"buffer": number},
                                 "b": {"buffer": number, "offset": 100},
                                 "d": {"buffer": number, "offset": 200}}),
        connection.send("buffer.copy", {"source": number, "source_offset": 200,
                                        "destination": number, "destination_offset": 400,
                                        "length": len(D)}),
        connection.send("buffer.read", {"buffer": number, "offset": 400, "length": len(D)}),
    ]
    results = [connection.wait(request)[0] for request in requests]
    expect(results[0] is None and results[1] is None and results[3] is None, "write, copy: nil")
    expect(results[4]["data"] == D, "write, gemm, copy, read in order")

    connection.refused(INVALID_ARGUMENT, "offset", "buffer.read",
                       {"buffer": number, "offset": 2**64 - 1, "length": 2})
    connection.refused(INVALID_ARGUMENT, "offset", "buffer.read",
                       {"buffer": number, "offset": 999, "length": 2})
    connection.call("buffer.free", {"buffer": number})


def check_shared_buffer(path, connection):
    """A named host buffer: mapped here, opened by name over another connection."""
    name = f"wire-client-{os.getpid()}"
    request = connection.send("buffer.create", {"kind": "host", "size": 4096, "name": name})
    created, fds = connection.wait(request)
    expect(len(fds) == 1, f"{len(fds)} descriptors came with a host buffer")
    with mmap.mmap(fds[0], 4096) as memory:
        memory[0:len(A)] = A
    os.close(fds[0])

    other = say_hello(path)
    opened = other.call("buffer.open", {"name": name})
    expect(opened["size"] == 4096 and opened["writable"] is False, f"{opened}")
    result = other.call("gemm", {**SHAPE, "a": {"buffer": opened["buffer"]}, "b": {"data": B}})
    expect(result["data"] == D, "gemm on a shared buffer")
    other.close()

    connection.call("buffer.free", {"buffer": created["buffer"]})
    connection.refused(NOT_FOUND, "name", "buffer.open", {"name": name})


def check_bad_requests(connection):
    """Each is refused by name, and the connection lives: a good one follows."""
    good = {**SHAPE, "a": {"data": A}, "b": {"data": B}}
    connection.refused(INVALID_ARGUMENT, "m", "gemm", {**good, "m": -1})
    connection.refused(INVALID_ARGUMENT, "m", "gemm", {**good, "m": 2.0})
    connection.refused(INVALID_ARGUMENT, "dtype", "gemm", {**good, "dtype": "fp7"})
    connection.refused(INVALID_ARGUMENT, "a.ld", "gemm", {**good, "a": {"data": A, "ld": 2}})
    connection.refused(INVALID_ARGUMENT, "a", "gemm", {**SHAPE, "b": {"data": B}})
    connection.refused(NOT_FOUND, "method", "gemv", {})
    connection.refused(INVALID_ARGUMENT, "params", "status", [1])
    check_inline(connection)


def check_reports(connection):
    status = connection.call("status")
    expect(status["ready"] is True and status["pid"] > 0, f"status: {status}")
    expect(isinstance(connection.call("stats"), dict), "stats")
    expect("configuration" in connection.call("explain", SHAPE), "explain")
    expect("entries" in connection.call("cache.list"), "cache.list")


def check_malformed(path):
    """What is no message ends that connection, with a last word; a new one is served."""
    for payload in (bytes.fromhex("ddff000000"), b"\x91" * 100000 + b"\xc0"):
        connection = say_hello(path)
        connection.send_payload(payload)
        answered, error, _, _ = connection.receive()
        expect(answered == LAST_ID and error["code"] == PROTOCOL, f"last word: {error}")
        expect(connection.socket.recv(1) == b"", "the connection stayed open")
        connection.close()
    check_inline(say_hello(path))


def check_export(connection):
    """Device memory by descriptor: of what was made for it."""
    made = connection.call("buffer.create", {"kind": "device", "size": 64, "exportable": True})
    result, fds = connection.wait(connection.send("buffer.export", {"buffer": made["buffer"]}))
    expect(len(fds) == 1, f"buffer.export: {len(fds)} descriptors")
    expect(result["allocation"] >= result["size"] == 64, f"buffer.export: {result}")
    expect(isinstance(result["device"], str), f"buffer.export: {result}")
    os.close(fds[0])
    plain = connection.call("buffer.create", {"kind": "device", "size": 64})
    connection.refused(INVALID_ARGUMENT, "buffer", "buffer.export", {"buffer": plain["buffer"]})
    connection.refused(INVALID_ARGUMENT, "exportable", "buffer.create",
                       {"kind": "host", "size": 64, "exportable": True})
    for buffer in (made, plain):
        connection.call("buffer.free", {"buffer": buffer["buffer"]})


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = sys.argv[1]
    check_hello_comes_first(path)
    connection = say_hello(path)
    for check in (check_inline, check_options, check_turns, check_many, check_empty,
                  check_memfd, check_device_buffer, check_bad_requests, check_reports):
        check(connection)
    check_shared_buffer(path, connection)
    check_malformed(path)
    connection.close()
    print("ok")


if __name__ == "__main__":
    try:
        main()
    except (Wrong, Refused, OSError, KeyError, TypeError, ValueError) as failure:
        sys.exit(f"wire_client.py: {type(failure).__name__}: {failure}")
