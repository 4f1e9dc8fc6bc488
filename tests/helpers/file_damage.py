"""Damage to a set of files: the bytes of one, or the content of an archive, JSON or policy."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

from tests.helpers.damage import ODD, flipped

Files = dict[str, bytes]


def damaged(files: Files, random: Random) -> Files:
    """`files` with one of them damaged: its bytes, or its content."""
    made = dict(files)
    weights = [10 if name.endswith((".json", ".txt", ".npz", ".qpol")) else 5 for name in files]
    (name,) = random.choices(list(files), weights)
    content = made[name]
    kind = random.randrange(4)
    if kind == 0:
        made[name] = flipped(content, random)
    elif kind == 1:
        made[name] = nudged(content, random)
    elif content.startswith(b"PK"):
        made[name] = odd_archive(content, random)
    elif content.startswith(b"\x89QPL"):
        made[name] = odd_policy(content, random)
    elif name.endswith(".json"):
        made[name] = odd_json(content, random)
    else:
        made[name] = nudged(content, random)
    # half of the time, the hash of the damaged file is correct again
    manifest = "out/manifest.json"
    if manifest in made and name != manifest and random.randrange(2):
        about = json.loads(made[manifest])
        about["files"][name.removeprefix("out/")] = hashlib.sha256(made[name]).hexdigest()
        made[manifest] = json.dumps(about).encode()
    return made


def nudged(content: bytes, random: Random) -> bytes:
    """Change one to three bytes. Readers of lengths get further with this than with `flipped`."""
    made = bytearray(content)
    for _ in range(random.randint(1, 3) if made else 0):
        made[random.randrange(len(made))] = random.choice((0, 1, 255, random.randrange(256)))
    return bytes(made)


def odd_archive(content: bytes, random: Random) -> bytes:
    """A valid archive in which one member is damaged."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(list(members))
    change = odd_json if name.endswith(".json") else random.choice((flipped, nudged))
    if name.endswith(".npy") and random.randrange(2):
        members[name] = odd_header(members[name], random)
    else:
        members[name] = change(members[name], random)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", random.choice((0, 8))) as archive:
        for key, member in members.items():
            archive.writestr(key, member)
    return made.getvalue()


def odd_header(content: bytes, random: Random) -> bytes:
    shape = tuple(random.choice(ODD) for _ in range(random.randrange(4)))
    descr = random.choice(("<f4", "|O", "<i8", "|b1", "<U9", ">u2", "|V0", "<c16"))
    made = io.BytesIO()
    header = {"descr": descr, "fortran_order": bool(random.randrange(2)), "shape": shape}
    np.lib.format.write_array_header_1_0(made, header)
    return made.getvalue() + content[-random.randrange(200) :]


def odd_policy(content: bytes, random: Random) -> bytes:
    """A policy that is damaged after its header, with a correct checksum."""
    change = random.choice((flipped, nudged))
    head, body = bytearray(content[:64]), change(content[64:], random)
    head[16:24] = (64 + len(body)).to_bytes(8, "little")
    head[24:56] = hashlib.sha256(body).digest()
    return bytes(head) + body


def odd_json(content: bytes, random: Random) -> bytes:
    try:
        found = json.loads(content)
    except ValueError:
        return flipped(content, random)
    places = [
        (c, k) for c in containers(found) for k in (c if isinstance(c, dict) else range(len(c)))
    ]
    for _ in range(random.randint(1, 3)):
        if places:
            where, key = random.choice(places)
            odd = (None, [], {}, "", "x" * 300, True, 0.5, "../x", {"class_name": "Lambda"}, *ODD)
            with suppress(LookupError):
                if isinstance(where, dict) and random.randrange(4) == 0:
                    del where[key]
                else:
                    where[key] = random.choice(odd)
    return json.dumps(found).encode()


def containers(found: Any) -> Any:
    if isinstance(found, dict | list):
        yield found
        for value in found.values() if isinstance(found, dict) else found:
            yield from containers(value)
