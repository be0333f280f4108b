"""Airbyte CDK: a declarative source, its state kept by whoever reads its messages."""
import json, os, sys
base, start, state, lookback = sys.argv[1:5]
import yaml
from airbyte_cdk.sources.declarative.concurrent_declarative_source import ConcurrentDeclarativeSource
from airbyte_cdk.models import ConfiguredAirbyteCatalog, ConfiguredAirbyteCatalogSerializer, AirbyteStateMessageSerializer, AirbyteStateMessage
import logging
manifest = yaml.safe_load(open(os.path.dirname(__file__) + "/airbyte.yaml"))
config = {"base": base, "start": start, "lookback": lookback, "__injected_declarative_manifest": manifest}
catalog = ConfiguredAirbyteCatalogSerializer.load({"streams": [{"stream": {"name": "audit", "json_schema": {}, "supported_sync_modes": ["full_refresh", "incremental"]},
    "sync_mode": "incremental", "destination_sync_mode": "append"}]})
states = [AirbyteStateMessageSerializer.load(json.load(open(state)))] if os.path.exists(state) else []
source = ConcurrentDeclarativeSource(catalog=catalog, config=config, state=states, source_config=manifest)
for m in source.read(logging.getLogger("airbyte"), config, catalog, states):
    if m.type.value == "RECORD":
        print(m.record.data["id"], flush=True)
    elif m.type.value == "STATE":
        with open(state + ".new", "w") as f: json.dump(AirbyteStateMessageSerializer.dump(m.state), f)
        os.rename(state + ".new", state)
