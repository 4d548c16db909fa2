#!/usr/bin/env bash
# What the checks need beside a Rust toolchain.
set -euo pipefail
missing=()
for tool in valgrind python3 objdump; do
    command -v $tool >/dev/null || missing+=($tool)
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing: ${missing[*]}"
apt-get update -qq
for tool in "${missing[@]}"; do
    case $tool in objdump) package=binutils ;; *) package=$tool ;; esac
    apt-get install -y -qq $package >/dev/null
done
