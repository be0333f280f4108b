"""dlt: rest_api source, incremental on the item's time, appended to files."""
import os, sys
base, start, home, lag = sys.argv[1:5]
os.environ["DLT_DATA_DIR"] = home
os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
import dlt
from dlt.sources.rest_api import rest_api_source
incremental = {"start_param": "start", "cursor_path": "time", "initial_value": start}
if float(lag): incremental["lag"] = float(lag)
source = rest_api_source({
    "client": {"base_url": base, "headers": {"X-Api-Key": "simulated"},
               "paginator": {"type": "cursor", "cursor_path": "nextCursor", "cursor_param": "cursor"}},
    "resources": [{"name": "audit", "primary_key": "id", "write_disposition": "append",
                   "endpoint": {"path": "audit", "params": {"pageSize": 100}, "data_selector": "items", "incremental": incremental}}],
})
p = dlt.pipeline(pipeline_name="peer", destination=dlt.destinations.filesystem(home + "/out"), dataset_name="d", pipelines_dir=home + "/pipes")
source.max_table_nesting = 0
p.run(source, loader_file_format="jsonl")
