#!/usr/bin/env bash
# Installs the distribution packages of scripts/packages.txt (and those named as arguments) that are missing.
# Asks for root through sudo only when something is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages: this is neither Debian nor Ubuntu; install the counterparts of scripts/packages.txt by hand" >&2
  exit 0
fi

missing=()
for package in $(sed 's/#.*//' "$here/packages.txt" | awk 'NF {print $1}') "$@"; do
  # A name may stand for a file that another package provides already (g++ from g++-12): ask for the installed status only.
  if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
    missing+=("$package")
  fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_packages: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
