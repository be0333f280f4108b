"""Singer SDK: a tap with a replication key, its state kept by whoever reads its messages."""
import json, os, sys, io
base, start, state = sys.argv[1:4]
from singer_sdk import RESTStream, Tap
from singer_sdk.pagination import JSONPathPaginator
from singer_sdk import typing as th
class Audit(RESTStream):
    name, path, primary_keys, replication_key = "audit", "/audit", ("id",), "time"
    url_base = base
    is_sorted = False
    records_jsonpath = "$.items[*]"
    schema = th.PropertiesList(th.Property("id", th.StringType), th.Property("time", th.DateTimeType)).to_dict()
    http_headers = {"X-Api-Key": "simulated"}
    def get_new_paginator(self): return JSONPathPaginator("$.nextCursor")
    def get_url_params(self, context, token):
        q = {"pageSize": 100, "start": self.get_starting_replication_key_value(context) or start}
        if token: q["cursor"] = token
        return q
class Peer(Tap):
    name = "peer"
    config_jsonschema = th.PropertiesList().to_dict()
    def discover_streams(self): return [Audit(self)]
class Out(io.TextIOBase):
    def write(self, text):
        for line in text.splitlines():
            if not line.strip(): continue
            m = json.loads(line)
            if m["type"] == "RECORD": os.write(1, (m["record"]["id"] + "\n").encode())
            if m["type"] == "STATE":
                with open(state + ".new", "w") as f: json.dump(m["value"], f)
                os.rename(state + ".new", state)
        return len(text)
sys.stdout = Out()
Peer(config={}, state=json.load(open(state)) if os.path.exists(state) else None).sync_all()
