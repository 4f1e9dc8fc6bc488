"""A process of a run for tests, which does what its settings name (python -m, see `joined`)."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from qgraph.errors import UsageError
from qgraph.records import from_json
from qgraph.rl.actor import Actor
from qgraph.rl.broadcast import Channel, Experience, RecordWriter, Subscriber, joined
from qgraph.rl.broadcast.experience import RingPlace
from qgraph.rl.broadcast.subscriber import BlockSource


def main() -> None:
    with joined(dict[str, object]) as (member, settings):
        task = settings["task"]
        if task == "refuse":
            raise UsageError("this task is refused", node="it")
        if task == "raise":
            raise ValueError("an error of no known kind")
        if task == "exit":
            print("last words", flush=True)
            os._exit(7)
        if task == "stuck":
            time.sleep(60)
        if task == "read":  # keeps the block, and reports its version
            reader = Channel.attach(settings["channel"], settings["reader"])
            member.wait(lambda seconds: reader.wait(0, seconds))
            block = reader.latest()
            member.numbers[0] = 1
            while member.running():
                member.numbers[1] = block[0]
                time.sleep(0.001)
        # writes blocks whose numbers all equal the version, and is killed during one
        if task == "write":
            writer = Channel.open(settings["channel"]).writer()
            for version in range(settings["count"]):
                writer.next_block()[:] = version
                writer.publish(version)
            writer.next_block()[: writer.channel.size // 2] = 255
            os.kill(os.getpid(), signal.SIGKILL)
        # continues to count from the ring's content when the last process was killed
        if task == "act":
            rings = Experience.open(settings["rings"])
            writer = rings.writer(settings["actor"])
            count = rings.written(writer.number)
            while member.running():
                record = np.full((), count, rings.dtype)
                count += writer.put(record, 0.01)
        if task == "subscribe":  # reports the version and the first output of each block
            subscriber = Subscriber(from_json(BlockSource, settings["policy"]), member)
            actor = Actor(subscriber.first())
            observation = np.array(settings["observation"], np.float32)
            while member.running():
                subscriber.step(actor.switch)
                member.numbers[1:3] = actor(observation)[0]
                member.numbers[0] = actor.version
        if task == "play":  # records which version of the policy gave which step
            subscriber = Subscriber(from_json(BlockSource, settings["policy"]), member)
            writer = RecordWriter.of(from_json(RingPlace, settings["records"]))
            block = subscriber.first()
            actor = None if block is None else Actor(block)
            observation = np.array(settings["observation"], np.float32)
            while actor is not None and member.running():
                subscriber.step(actor.switch)
                record = np.zeros((), writer.rings.dtype)
                record["actor"], record["version"] = settings["actor"], actor.version
                record["pid"], record["output"] = os.getpid(), actor(observation)[0]
                writer.put(record, 0.1)
                member.numbers[0] = actor.version
                time.sleep(0.001)
        if task == "modules":
            assert not {"tensorflow", "torch", "onnx"} & set(sys.modules)
        while member.running():
            time.sleep(0.01)


if __name__ == "__main__":
    main()
