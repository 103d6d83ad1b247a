# Sourced by the scripts beside it: stands at the top of the checkout, with the ways they share.
set -eu
cd "$(dirname "$0")/.."

# The caches of uv and npm have to go somewhere, also where the user has no home of its own.
if [ ! -w "${HOME:-/nowhere}" ]; then
	HOME=$PWD/.tools/home
	export HOME
	mkdir -p "$HOME"
fi

# The sum of some files and of where the checkout stands: environments hold absolute paths.
fingerprint() {
	{
		pwd -P
		cat "$@"
	} | cksum
}

# Whether an environment was finished from exactly what the fingerprint says.
finished() { # environment fingerprint
	[ -f "$1/.finished" ] && [ "$(cat "$1/.finished")" = "$2" ]
}

# Two commands at once take turns, where the system has flock.
take_turns() {
	mkdir -p .tools
	if command -v flock >/dev/null 2>&1; then
		exec 9>.tools/.lock
		flock 9
	fi
}

# Makes a virtual environment hold exactly what a lock says. What an interrupted command left behind is thrown away.
fill() { # environment lock
	[ ! -e "$1/.unfinished" ] && "$1/bin/python" -c '' 2>/dev/null || rm -rf "$1"
	mkdir -p "$1"
	: >"$1/.unfinished"
	rm -f "$1/.finished"
	if [ ! -e "$1/bin/python" ]; then
		python=$(scripts/find-python)
		scripts/uv venv --quiet --allow-existing --python "$python" "$1"
	fi
	scripts/uv pip sync --quiet --python "$1/bin/python" --require-hashes --compile-bytecode "$2"
}

finish() { # environment fingerprint
	echo "$2" >"$1/.finished"
	rm -f "$1/.unfinished"
}
