# Shared by the tests of packages that are written in bash; each of them sources it.  Makes the folder
# $work, whose file "log" has the output of the last command, and removes it at the end.
#   skip REASON, needs PROGRAM..., check STATUS SENTENCE, finish
#   clean_root, inside COMMAND..., installed_checks, removed_checks: a package in a clean Debian 12
# shellcheck shell=bash
work=$(mktemp -d)
root=$work/root
service=
passed=0 failed=0

cleanup() {
	[ -n "$service" ] && kill "$service" 2>/dev/null && wait "$service" 2>/dev/null
	umount "$root/proc" 2>/dev/null
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT

skip() {
	echo "skipped: tests/package/${0##*/}: $1"
	exit 0
}

# The last argument is the kind of tools/deps that installs the programs.
needs() { # programs... kind
	local program
	for program in "${@:1:$#-1}"; do
		command -v "$program" >/dev/null || skip "$program is not installed (tools/deps ${*: -1})"
	done
}

check() { # exit status, sentence
	if [ "$1" -eq 0 ]; then
		passed=$((passed + 1))
		echo "ok    $2"
	else
		failed=$((failed + 1))
		echo "FAIL  $2"
		tail -20 "$work/log"
	fi
}

finish() {
	echo "$passed passed, $failed failed"
	[ "$failed" -eq 0 ]
}

inside() {
	chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH="/usr/sbin:/usr/bin:/sbin:/bin" "$@"
}

# Makes a Debian 12 with the libraries that the package needs.  No systemd runs in it: its systemctl
# only writes its arguments into /systemctl.log.
clean_root() {
	timeout 400 mmdebstrap --variant=minbase \
		--include=systemd,procps,man-db,python3,libmicrohttpd12,libsqlite3-0,zlib1g,libjansson4,libncursesw6,libcurl4 \
		bookworm "$root" >"$work/log" 2>&1 || skip "mmdebstrap failed: $(tail -1 "$work/log")"
	mkdir -p "$root/proc"
	mount -t proc proc "$root/proc"
	# shellcheck disable=SC2016 # the program's own arguments
	printf '#!/bin/sh\necho "$*" >>/systemctl.log\n' >"$root/usr/bin/systemctl"
	: >"$root/systemctl.log"
	# The distributions of these packages search these folders for libraries; Debian does not.
	printf '/usr/lib64\n/usr/lib\n' >"$root/etc/ld.so.conf.d/package.conf"
	inside ldconfig
	mkdir -p "$root"/usr/{lib64/pkgconfig,share/licenses} # folders that their base systems have
	inside systemd-sysusers # makes the users of Debian's packages
	files >"$work/before"
}

# Prints every path that a package could leave, except the database of the package system and caches.
files() {
	(cd "$root" && find . \( -path ./proc -o -path ./run -o -path ./root -o -path ./var/lib/rpm -o -path ./var/lib/pacman -o -path ./var/cache -o -path ./tmp \
		-o -path ./etc/ld.so.cache -o -path ./systemctl.log -o -name __pycache__ \) -prune -o -print | LC_ALL=C sort)
}

# Starts the service in the root and reads its page and its API; its history is in /root/gpuward.db.
serves() { # program
	local url= good
	# Without a subshell in between, so that kill reaches the service.
	chroot "$root" /usr/bin/env -i HOME=/root "$1" serve --simulate --listen 127.0.0.1:0 --history /root/gpuward.db \
		>"$work/log" 2>&1 &
	service=$!
	while [ -z "$url" ] && kill -0 $service 2>/dev/null; do
		url=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$work/log" | head -1)
		sleep 0.1 # only its output shows when it is ready
	done
	curl -sf --retry 60 --retry-delay 1 -o /dev/null "$url/readyz" # 503 until the GPUs are read
	[[ $(curl -sf "$url/") == *'<title>'* && $(curl -sf "$url/api/gpu/devices") == *H200* ]]
	good=$?
	kill $service 2>/dev/null
	wait $service 2>/dev/null
	service=
	return $good
}

# Prints the manual pages of docs/man that man does not find in the root.
pages_missing() {
	local page
	for page in docs/man/*.scd; do
		page=$(basename "$page" .scd)
		inside man -w "${page##*.}" "${page%.*}" >/dev/null 2>&1 || echo "$page"
	done
}

# What every package must have, whatever its format is.
installed_checks() { # folder of libraries
	local version library
	version=$(sed -n "s/^ *version: '\([0-9.]*\)',$/\1/p" meson.build | head -1)
	inside gpuward --version >"$work/log" 2>&1 && grep -qF "$version" "$work/log"
	check $? "gpuward --version is $version"
	inside gpuward list --simulate >"$work/log" 2>&1 && grep -q SIMULATED "$work/log"
	check $? "gpuward list --simulate"
	serves /usr/bin/gpuward
	check $? "gpuward serve answers with the page and the API"
	inside systemd-analyze --man=no verify /usr/lib/systemd/system/gpuward{,-companion}.{service,socket} >"$work/log" 2>&1 &&
		[ ! -s "$work/log" ]
	check $? "systemd accepts the units and finds their programs"
	inside getent passwd gpuward >"$work/log" && inside getent group gpuward >>"$work/log"
	check $? "sysusers.d makes the service's user and group"
	pages_missing >"$work/log"
	[ ! -s "$work/log" ]
	check $? "man finds every manual page"
	inside bash -c '. /usr/share/bash-completion/completions/gpuward && complete -p gpuward' >"$work/log" 2>&1 &&
		[ -s "$root/usr/share/zsh/site-functions/_gpuward" ] && [ -s "$root/usr/share/fish/vendor_completions.d/gpuward.fish" ]
	check $? "completions for bash, zsh and fish"
	library=$root$1/libgpuward.so.0
	objdump -p "$library" >"$work/log" 2>&1 && grep -q 'SONAME *libgpuward.so.0$' "$work/log" &&
		[ "$(readlink -f "$root$1/libgpuward.so")" = "$(readlink -f "$library")" ] && [[ $(inside ldconfig -p) == *libgpuward.so.0* ]]
	check $? "the library is libgpuward.so.0, and the linker finds it"
	[ -s "$root/usr/include/gpuward.h" ] && grep -q "^Version: $version$" "$root$1/pkgconfig/gpuward.pc"
	check $? "header and pkg-config file"
	inside python3 -B -c 'import gpuward; print(gpuward.library_path(), gpuward.snapshot()["devices"])' >"$work/log" 2>&1 &&
		grep -q libgpuward.so.0 "$work/log"
	check $? "python3 finds the module and the library"
	! grep -qE 'enable|start' "$root/systemctl.log"
	check $? "the installation neither enables nor starts a service"
}

edit_configuration() {
	mkdir -p "$root/etc/gpuward"
	echo '# edited' >"$root/etc/gpuward/gpuward.toml"
	: >"$root/systemctl.log"
}

upgraded_checks() {
	grep -q '^# edited$' "$root/etc/gpuward/gpuward.toml"
	check $? "an upgrade keeps an edited configuration file"
	cp "$root/systemctl.log" "$work/log"
	grep -q '^try-restart gpuward.service$' "$work/log" && ! grep -q disable "$work/log"
	check $? "an upgrade restarts a service that runs, and disables nothing"
	: >"$root/systemctl.log"
}

removed_checks() {
	cp "$root/systemctl.log" "$work/log"
	grep -q '^disable --now .*gpuward.service' "$work/log"
	check $? "the removal stops and disables the service"
	[ -s "$root/etc/gpuward/gpuward.toml" ]
	check $? "the removal keeps the configuration"
	rm -r "$root/etc/gpuward"
	files | LC_ALL=C comm -13 "$work/before" - >"$work/log"
	[ ! -s "$work/log" ]
	check $? "no file is left"
}
