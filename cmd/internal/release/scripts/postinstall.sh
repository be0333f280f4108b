#!/bin/sh
# A new package does not start the service: it has no settings yet. An upgrade restarts it.
set -e
if [ -d "$DPKG_ROOT/run/systemd/system" ]; then
  systemctl daemon-reload
  systemctl try-restart exportbridge.service
fi
