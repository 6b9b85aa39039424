#!/bin/sh
# Installs the system libraries Qt needs (packaging/apt.txt) where they are missing. Needs root for that.
set -eu
list="$(dirname "$0")/apt.txt"
command -v dpkg-query >/dev/null 2>&1 || { echo "Not a Debian system: install the counterparts of $list yourself."; exit 0; }
missing=""
while read -r name; do
  case "$name" in ''|'#'*) continue ;; esac
  dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $name"
done < "$list"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -eq 0 ]; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
  echo "The window needs these system packages. As root, run:" >&2
  echo "  apt-get install$missing" >&2
  exit 1
fi
