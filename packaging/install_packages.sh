#!/bin/sh
# Installs the system packages of the lists (packaging/apt.txt by default) where they are missing. Needs root for that.
# A line is a package, then names of programs, any of which makes it unnecessary.
set -eu
[ $# -gt 0 ] || set -- "$(dirname "$0")/apt.txt"
command -v dpkg-query >/dev/null 2>&1 || { echo "Not a Debian system: install the counterparts of $* yourself."; exit 0; }

is_there() {
  dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed' && return
  shift
  for program; do command -v "$program" >/dev/null 2>&1 && return; done
  return 1
}

missing=""
for list; do
  while read -r name programs; do
    case "$name" in ''|'#'*) continue ;; esac
    is_there "$name" $programs || missing="$missing $name"
  done < "$list"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -eq 0 ]; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
  echo "These system packages are missing. As root, run:" >&2
  echo "  apt-get install$missing" >&2
  exit 1
fi
