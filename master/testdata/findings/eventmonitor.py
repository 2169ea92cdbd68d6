"""Tells what a master of Salt does with forwarded events.

Standard input: a JSON list of {"Tag": ..., "Peer": ...}. Each travels as
MasterPubServerChannel sends it, is taken apart by Salt's parse_cluster_tag and
given to Salt's EventMonitor.handle_event and BatchManager._handle_event. Only what
would reach outside is replaced. Standard output: a JSON list of what was done, "" for nothing.
"""

import asyncio
import importlib.util
import json
import sys

import salt.channel.server
import salt.master
import salt.utils.event
import salt.utils.job

did = []


class Channel:
    async def publish(self, load):
        did.append("publish a job")


salt.utils.job.store_minions = lambda *a, **k: did.append("name minions of a job")
salt.utils.job.store_job = lambda *a, **k: did.append("store a return")
salt.master.SMaster.rotate_cluster_secret = classmethod(lambda *a, **k: did.append("rotate its keys"))
if hasattr(salt, "cluster") and hasattr(salt.cluster, "ring_membership"):
    salt.cluster.ring_membership.owns_for = lambda *a, **k: True

batches = None
if importlib.util.find_spec("salt.utils.batch_manager"):
    import salt.utils.batch_manager
    import salt.utils.batch_state

    salt.utils.batch_state.write_batch_state = lambda *a, **k: did.append("keep a batch")
    salt.utils.batch_state.read_batch_state = lambda *a, **k: {"driver": "master"}
    salt.utils.batch_state.add_to_active_index = lambda *a, **k: None
    salt.utils.batch_state.remove_from_active_index = lambda *a, **k: None
    batches = salt.utils.batch_manager.BatchManager.__new__(salt.utils.batch_manager.BatchManager)
    batches.opts, batches.active_batches, batches.output = {}, set(), None
    batches._adopt = lambda *a, **k: did.append("drive a batch")
    batches._retire = lambda *a, **k: did.append("stop a batch")
    batches._progress_one = lambda *a, **k: did.append("go on with a batch")

monitor = salt.master.EventMonitor.__new__(salt.master.EventMonitor)
monitor.opts = {"cluster_id": "c", "interface": "127.0.0.1", "id": "m"}
monitor.channels = [Channel()]
monitor.ipc_publisher = None
monitor._apply_peer_key_change = lambda *a: did.append("change a key")


async def main():
    out = []
    for q in json.load(sys.stdin):
        did.clear()
        sent = salt.utils.event.tagify(q["Tag"], q["Peer"], "cluster/event")
        peer, tag = salt.channel.server.MasterPubServerChannel.parse_cluster_tag(None, sent)
        data = {
            "id": "web1", "act": "accept", "pub": "x", "jid": "20260102030405678901", "fun": "cmd.run", "tgt": "*",
            "minions": ["web1"], "return": 1, "__peer_id": peer,
        }
        if q.get("Driver"):
            data["state"] = {"driver": q["Driver"], "jid": "20260102030405678901"}
        if batches:
            batches._handle_event({"tag": tag, "data": data})
        await monitor.handle_event(salt.utils.event.SaltEvent.pack(tag, data))
        out.append(", ".join(did))
    json.dump(out, sys.stdout)


asyncio.run(main())
