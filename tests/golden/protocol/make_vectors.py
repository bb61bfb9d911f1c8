#!/usr/bin/env python3
"""Prints vectors.json: one frame of each message type, made from docs/reference/protocol.md alone.

This is a second implementation of the frame; test_protocol.c compares fedge's with it byte for byte.
Vectors of a released protocol never change: add new ones at the end."""
import json
import struct
import zlib

TYPES = ["hello", "welcome", "decline", "refuse", "task", "fetch", "chunk", "upload", "resume",
         "part", "ack", "cancel", "bye"]
RUN = "00112233445566778899aabbccddeeff"
PLAN = "".join("%02x" % i for i in range(32))
MODEL = "".join("%02x" % (255 - i) for i in range(32))

VECTORS = [
    ("hello", "hello", {
        "protocol-min": 1, "protocol-max": 1, "release": "0.1.0", "arch": "aarch64",
        "ram": 1073741824, "features": ["codec:none", "codec:int8", "deflate"],
        "data": ["fashion-mnist"], "errors": ["link: timed out after 30 s"]}, b""),
    ("hello-least", "hello", {
        "protocol-min": 1, "protocol-max": 3, "release": "1.0.0", "arch": "armv7l", "ram": 0}, b""),
    ("welcome", "welcome", {
        "protocol": 1, "client-index": 7, "server-time-ms": 1767225600000, "run-id": RUN,
        "incarnation": 1, "plan": PLAN, "plan-size": 1234, "heartbeat-s": 30}, b""),
    ("decline", "decline", {
        "reason": "policy", "class": "never", "after-ms": 0,
        "text": "local-epochs 100, this site allows 50"}, b""),
    ("refuse-later", "refuse", {
        "task-id": 42, "reason": "no-space", "class": "later", "after-ms": 60000,
        "text": "no room for the round"}, b""),
    ("task", "task", {
        "task-id": 42, "kind": "train", "round": 3, "model": MODEL, "model-size": 6653628,
        "deadline-ms": 600000, "learning-rate": 0.05, "bounds": [2, -3]}, b""),
    ("task-evaluate", "task", {
        "task-id": 9007199254740991, "kind": "evaluate", "round": 3, "model": MODEL,
        "model-size": 104, "deadline-ms": 1, "learning-rate": 0}, b""),
    ("task-control", "task", {
        "task-id": 45, "kind": "train", "round": 1, "model": MODEL, "model-size": 208,
        "deadline-ms": 1, "learning-rate": 1, "bounds": [2, 2], "control-size": 104,
        "last-counted": 0}, b""),
    ("task-control-later", "task", {
        "task-id": 52, "kind": "train", "round": 3, "model": MODEL, "model-size": 208,
        "deadline-ms": 1, "learning-rate": 1, "bounds": [2, 2], "control-size": 104,
        "last-counted": 45}, b""),
    ("fetch", "fetch", {"hash": PLAN, "offset": 0}, b""),
    ("chunk", "chunk", {"hash": PLAN, "offset": 65536, "size": 65541}, b"fedge"),
    ("upload", "upload", {
        "task-id": 42, "run-id": RUN, "incarnation": 1, "size": 300, "crc32": 3735928559,
        "examples": 6000,
        "sections": [{"name": "delta", "codec": "int8", "deflate": True, "size": 300,
                      "raw-size": 1000}],
        "metrics": {"loss": 0.5, "accuracy": 0.8125, "seconds": 1.25}}, b""),
    ("upload-evaluate", "upload", {
        "task-id": 43, "run-id": RUN, "incarnation": 1, "size": 0, "crc32": 0, "examples": 600,
        "metrics": {"loss": 2.3025850929940455}}, b""),
    ("upload-sections", "upload", {
        "task-id": 44, "run-id": RUN, "incarnation": 1, "size": 1260, "crc32": 1, "examples": 1,
        "sections": [{"name": "delta", "codec": "int8", "deflate": True, "size": 300,
                      "raw-size": 1000},
                     {"name": "buffers", "codec": "none", "deflate": False, "size": 64,
                      "raw-size": 64},
                     {"name": "control", "codec": "int8", "deflate": True, "size": 896,
                      "raw-size": 1000}]}, b""),
    ("resume", "resume", {"task-id": 42, "offset": 131072}, b""),
    ("part", "part", {"task-id": 42, "offset": 295}, bytes([0, 1, 2, 254, 255])),
    ("ack", "ack", {"task-id": 42, "duplicate": False}, b""),
    ("ack-duplicate", "ack", {"task-id": 42, "duplicate": True}, b""),
    ("cancel", "cancel", {
        "task-id": 42, "reason": "stale-task", "class": "retry", "after-ms": 0}, b""),
    ("bye", "bye", {
        "reason": "shutting-down", "class": "later", "after-ms": 5000, "text": "restart"}, b""),
    ("welcome-return", "welcome", {
        "protocol": 1, "client-index": 7, "server-time-ms": 1767225600000, "run-id": RUN,
        "incarnation": 1, "plan": PLAN, "plan-size": 1234, "heartbeat-s": 30,
        "return-within-ms": 50000}, b""),
    ("welcome-initial-model", "welcome", {
        "protocol": 1, "client-index": 7, "server-time-ms": 1767225600000, "run-id": RUN,
        "incarnation": 1, "plan": PLAN, "plan-size": 1234, "heartbeat-s": 30,
        "initial-model": MODEL}, b""),
    ("task-parts", "task", {
        "task-id": 53, "kind": "train", "round": 4, "model": MODEL, "model-size": 6653628,
        "deadline-ms": 600000, "learning-rate": 0.05, "parts": PLAN, "parts-size": 480}, b""),
    ("fetch-part", "fetch", {"hash": MODEL, "offset": 1048576, "size": 65536}, b""),
    ("hello-more-features", "hello", {
        "protocol-min": 1, "protocol-max": 1, "release": "0.2.0", "arch": "x86_64", "ram": 1,
        "features": ["codec:none"], "hangs-up": True,
        "more-features": ["down-by-layer", "codec-by-section"]}, b""),
]


def frame(kind, meta, payload):
    text = json.dumps(meta, separators=(",", ":")).encode()
    head = struct.pack("<4sBBHII", b"FEDG", 1, TYPES.index(kind) + 1, 0, len(text), len(payload))
    crc = zlib.crc32(payload, zlib.crc32(text, zlib.crc32(head)))
    return head + struct.pack("<II", crc, 0) + text + payload


if __name__ == "__main__":
    print(json.dumps([{"name": name, "type": kind, "meta": meta, "payload": payload.hex(),
                       "frame": frame(kind, meta, payload).hex()}
                      for name, kind, meta, payload in VECTORS], indent=1))
