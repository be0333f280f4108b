"""Follows one simulated audit list, newest first and shown late, with several programs side by
side, kills each at times, and counts what is lost and what comes twice."""
import collections, datetime, glob, gzip, json, os, random, signal, subprocess, sys, threading, time, urllib.parse, urllib.request
seconds, kills, recipes, tools = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
work = tools + "/work"
os.makedirs(work)


def serve(*argv):
    """Starts a server and returns it with the words of its first lines."""
    out = f"{work}/{argv[0]}.out"
    p = subprocess.Popen([tools + "/dev", *argv], stdout=open(out, "w"), stderr=subprocess.DEVNULL, start_new_session=True)
    while len(open(out).read().splitlines()) < 1 + 2 * (argv[0] == "demo"):
        time.sleep(0.2)
    return p, open(out).read().replace(",", "").split()


sim, words = serve("simulate", "--form", "audit-list", "--lag", "30s", "--rate", "50/s", "--events", "3000")
base = next(w for w in words if w.startswith("http"))
demo, words = serve("demo")
kafka, redis = words[words.index("Kafka") + 1], words[words.index("Redis") + 1]
stamp = lambda t: datetime.datetime.fromtimestamp(t, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
began = time.time(); start = stamp(began - 40); until = began + seconds
def killer(proc, delay):
    try: proc.wait(delay)
    except subprocess.TimeoutExpired:
        os.killpg(proc.pid, signal.SIGKILL); proc.wait(); return True
    return False
killed = collections.Counter()
def syncs(name, argv):
    rng, out = random.Random(name), open(f"{work}/{name}.out", "ab")
    took = 2.0
    while time.time() < until + 90:
        t = time.time()
        p = subprocess.Popen(argv, stdout=out, stderr=open(f"{work}/{name}.err", "ab"), start_new_session=True)
        due = killed[name] < kills * (t - began) / seconds and t < until
        if due and killer(p, rng.uniform(0.3, 1.0) * took): killed[name] += 1
        else:
            p.wait(); took = time.time() - t
        time.sleep(max(0, 5 - (time.time() - t)) if not due else 0)
def daemon(name, argv, env):
    rng = random.Random(name)
    while time.time() < until:
        p = subprocess.Popen(argv, env={**os.environ, **env}, stdout=open(f"{work}/{name}.log", "ab"), stderr=subprocess.STDOUT, start_new_session=True)
        if killer(p, min(rng.uniform(0.5, 1.5) * seconds / (kills + 1), until - time.time())): killed[name] += time.time() < until
    p = subprocess.Popen(argv, env={**os.environ, **env}, stdout=open(f"{work}/{name}.log", "ab"), stderr=subprocess.STDOUT, start_new_session=True)
    time.sleep(90); p.terminate(); p.wait()
py = lambda v, f: [f"{tools}/{v}/bin/python", f"{recipes}/{f}"]
jobs = [threading.Thread(target=syncs, args=a) for a in [
    ("script", ["python3", recipes + "/script.py", base, start, work + "/script.state"]),
    ("dlt", [*py("dlt", "dlt_peer.py"), base, start, work + "/dlt", "0"]),
    ("dlt-lag", [*py("dlt", "dlt_peer.py"), base, start, work + "/dlt-lag", "31"]),
    ("airbyte", [*py("airbyte-cdk", "airbyte_peer.py"), base, start, work + "/airbyte.state", "PT0S"]),
    ("airbyte-lookback", [*py("airbyte-cdk", "airbyte_peer.py"), base, start, work + "/airbyte-lookback.state", "PT31S"]),
    ("singer", [*py("singer-sdk", "singer_peer.py"), base, start, work + "/singer.state"])]]
os.makedirs(work + "/bs")
jobs.append(threading.Thread(target=daemon, args=("connect", [tools + "/connect", "-c", recipes + "/benthos.yaml"], dict(START=start, BASE=base, OUT=work + "/connect.out", STATE=work + "/bs"))))
settings = dict(EXPORT_URL=base, EXPORT_FOLLOW="windows", EXPORT_PATH="/audit", EXPORT_ITEM_ID="/id", EXPORT_ITEM_TIME="/time", EXPORT_ITEM_INGESTED="none", EXPORT_ITEM_TYPE="/type",
    EXPORT_ITEM_SUBJECT="/actor/id", KAFKA_KEY="/actor/id", EXPORT_ITEM_TIME_FORMAT="rfc3339", EXPORT_TIME_FORMAT="rfc3339", EXPORT_API_KEY="simulated", EXPORT_START=start, EXPORT_SETTLE="2s", EXPORT_LOOK_BACK="31s",
    KAFKA_BROKERS=kafka, REDIS_URL="redis://" + redis, KAFKA_TOPIC="mine", KAFKA_CHECKPOINT_TOPIC="mine.cp", BRIDGE_GROUP="mine", CURSOR_PREFIX="mine", HTTP_ADDR="off", EXPORT_PAGE_SIZE="100")
subprocess.run([tools + "/exportbridge", "topics", "create", "--execute"], env={**os.environ, **settings}, check=True, stdout=subprocess.DEVNULL)
jobs.append(threading.Thread(target=daemon, args=("exportbridge", [tools + "/exportbridge", "run"], settings)))
for j in jobs: j.start()
for j in jobs: j.join()
truth, cursor, end = {}, None, stamp(until)
while True:
    q = {"start": start, "end": end, "pageSize": "1000"}
    if cursor: q["cursor"] = cursor
    page = json.load(urllib.request.urlopen(urllib.request.Request(base + "/audit?" + urllib.parse.urlencode(q), headers={"X-Api-Key": "simulated"})))
    for i in page["items"]: truth[i["id"]] = i["time"]
    cursor = page.get("nextCursor")
    if not cursor: break
def ids(name):
    if name.startswith("dlt"):
        for f in glob.glob(f"{work}/{name}/out/d/audit/*.jsonl*"):
            for line in (gzip.open if f.endswith("gz") else open)(f, "rt"): yield json.loads(line)["id"]
    elif name == "exportbridge":
        out = subprocess.run(["kcat", "-q", "-b", kafka, "-X", "isolation.level=read_committed", "-C", "-t", "mine", "-e", "-f", "%s\n"], capture_output=True, text=True, check=True).stdout
        for line in out.splitlines(): yield json.loads(line)["id"]
    else:
        for line in open(f"{work}/{name}.out"): yield line.strip()
print(f"{len(truth)} events of {seconds} s, each shown up to 30 s late; {kills} kills")
for name in ["script", "connect", "dlt", "dlt-lag", "airbyte", "airbyte-lookback", "singer", "exportbridge"]:
    n = collections.Counter(i for i in ids(name) if i in truth)
    print(f"{name:18} {killed[name]:2} kills, {len(truth) - len(n):5} lost, {sum(c - 1 for c in n.values()):6} twice")
for p in sim, demo:
    os.killpg(p.pid, signal.SIGKILL)
