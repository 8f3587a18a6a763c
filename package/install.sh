#!/bin/sh
# Installs Gabion below PREFIX (default /usr/local), units and configuration below /etc. Needs root there.
# To remove it again: ./install.sh --remove [PREFIX]. Configuration and redundancy stay.
set -eu
remove=no
if [ "${1:-}" = --remove ]; then
	remove=yes
	shift
fi
prefix=${1:-/usr/local}
etc=${GABION_ETC:-/etc}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/root/usr"
find . -type f ! -path './lib/*' | while IFS= read -r file; do
	if [ $remove = yes ]; then
		rm -f "$prefix/$file"
	else
		mode=644
		if [ -x "$file" ]; then mode=755; fi
		install -D -m $mode "$file" "$prefix/$file"
	fi
done
for unit in lib/systemd/system/*; do
	to=$etc/systemd/system/${unit##*/}
	if [ $remove = yes ]; then
		rm -f "$to"
	else
		sed "s|/usr/bin/gabion|$prefix/bin/gabion|g" "$unit" | install -D -m 644 /dev/stdin "$to"
	fi
done
if [ $remove = no ] && [ ! -e "$etc/gabion/daemon.toml" ]; then
	install -D -m 644 ../etc/gabion/daemon.toml "$etc/gabion/daemon.toml"
fi
