"""The usual script: ask since the newest time seen, append, remember it."""
import json, os, sys, urllib.request, urllib.parse
base, start, state = sys.argv[1:4]
since = open(state).read() if os.path.exists(state) else start
newest, cursor = since, None
while True:
    q = {"start": since, "pageSize": "100"}
    if cursor: q["cursor"] = cursor
    r = urllib.request.Request(base + "/audit?" + urllib.parse.urlencode(q), headers={"X-Api-Key": "simulated"})
    page = json.load(urllib.request.urlopen(r, timeout=30))
    for item in page["items"]:
        print(item["id"], flush=True)
        newest = max(newest, item["time"])
    cursor = page.get("nextCursor")
    if not cursor: break
open(state + ".new", "w").write(newest); os.rename(state + ".new", state)
