"""Learner, quantizer and actors as processes: weights one way, records the other.

docs/rl_actors.md describes them.
"""

from qgraph.rl.broadcast.channel import Channel, Reader, Writer
from qgraph.rl.broadcast.direct import DirectPublisher
from qgraph.rl.broadcast.experience import Experience, RecordReader, RecordWriter
from qgraph.rl.broadcast.member import Member, joined
from qgraph.rl.broadcast.publisher import Publisher
from qgraph.rl.broadcast.subscriber import Subscriber
from qgraph.rl.broadcast.supervisor import Supervisor

__all__ = [
    "Channel",
    "DirectPublisher",
    "Experience",
    "Member",
    "Publisher",
    "Reader",
    "RecordReader",
    "RecordWriter",
    "Subscriber",
    "Supervisor",
    "Writer",
    "joined",
]
