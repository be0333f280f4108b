#!/bin/sh
# dpkg says remove, rpm 0; on upgrades, upgrade and 1.
set -e
case "$1" in
remove | 0)
  if [ -d "$DPKG_ROOT/run/systemd/system" ]; then
    systemctl disable --now exportbridge.service
  fi
  ;;
esac
