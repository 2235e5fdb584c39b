# Sourced by its neighbours: finds the project's folder and keeps its virtual environment as
# pyproject.toml and the files of pins say. It reports on standard error. Serving needs a
# quarter of the libraries; those for tests, checks and pages are added when a script asks for them.
# shellcheck shell=bash

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
python=$root/.venv/bin/python
made_from=$root/.venv/made-from

# The inputs of an environment of a kind, "serving" or "all". The folder is one of them, since the
# environment names it.
recipe() {
  printf '%s\n' "$root"
  cat "$root/pyproject.toml"
  case $1 in
    serving) cat "$root/constraints.txt" "$root/constraints-build.txt" ;;
    all) cat "$root/constraints-dev.txt" ;;
  esac
}

# An environment with all is one for serving, too.
venv_is_current() {
  [ -x "$python" ] && [ -e "$made_from" ] || return
  recipe all | cmp -s - "$made_from" || { [ "$1" = serving ] && recipe serving | cmp -s - "$made_from"; }
}

# Sets `pip` to the command that installs into the environment: its own pip, or else that of the
# Python it is made of (pip 22.3 and newer can). One of its own would take a third of a first start.
find_pip() {
  local base has_pip
  has_pip='import pip, sys; sys.exit([int(n) for n in pip.__version__.split(".")[:2]] < [22, 3])'
  pip=("$python" -I -m pip)
  if [ ! -e "$root/.venv/bin/pip" ]; then
    base=$(readlink -f "$python")
    if "$base" -I -c "$has_pip" >/dev/null 2>&1; then
      pip=("$base" -I -m pip --python "$python")
    else
      "$python" -I -m ensurepip >/dev/null
    fi
  fi
}

# install_by KIND ...: installs by pip's arguments; by uv where it is on the path, which takes a
# tenth of the time. A service imports few modules of its libraries and compiles these when it needs
# them; compiling all would take a quarter of pip's time. Tests import most, in many processes.
install_by() {
  local compile=--compile
  if [ "$1" = serving ]; then
    compile=--no-compile
  fi
  shift
  if command -v uv >/dev/null; then
    uv pip install --quiet --python "$python" "$@"
  else
    find_pip
    # -I and env: neither the caller's folder nor its variables may stand in for a module of pip's.
    env -u PYTHONPATH -u PYTHONHOME "${pip[@]}" install -qq "$compile" --disable-pip-version-check \
      --root-user-action ignore "$@"
  fi
}

# Makes the environment anew, or brings a finished one up to date where it stands, which leaves
# running services alone as long as no library changes. Content is compared, not times: a checkout
# changes times. Two callers make it once; one that is killed half-way leaves no recipe behind, and
# the next begins again.
make_venv() (
  if ! { exec 9>"$root/.venv.lock"; } 2>/dev/null; then
    printf 'fw: %s is not ready and cannot be written; its owner runs %q version\n' \
      "$root/.venv" "$root/scripts/fw" >&2
    exit 1
  fi
  flock 9
  if venv_is_current "$1"; then
    exit
  fi
  if [ "$1" = all ] && venv_is_current serving; then
    printf 'fw: installing the libraries for tests, checks and pages in %s ...\n' "$root/.venv" >&2
  else
    printf 'fw: preparing %s ...\n' "$root/.venv" >&2
  fi
  kind=$1
  # Kept once installed: installing it again would take minutes.
  if [ -e "$root/.venv/has-all" ]; then
    kind=all
  fi
  was=
  if [ -e "$made_from" ]; then
    read -r was <"$made_from"
  fi
  if [ "$was" != "$root" ] || [ ! -x "$python" ]; then
    base=${PYTHON:-python3}
    if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      printf 'fw: Python 3.11 or newer is required; set PYTHON to its path\n' >&2
      exit 1
    fi
    "$base" -m venv --clear --without-pip "$root/.venv"
    kind=$1
  fi
  rm -f "$made_from"
  # The files of pins are complete, so that pip need not look for what their libraries depend on.
  if [ "$kind" = all ]; then
    install_by all --no-deps --require-hashes --requirement "$root/constraints-dev.txt" >&2
    : >"$root/.venv/has-all"
  else
    install_by serving --no-deps --require-hashes --requirement "$root/constraints.txt" \
      --requirement "$root/constraints-build.txt" >&2
  fi
  install_by "$kind" --no-deps --no-build-isolation --editable "$root" >&2
  recipe "$kind" >"$made_from.new"
  mv "$made_from.new" "$made_from"
)

# use_venv [serving]: makes it when it is missing or out of date; without an argument with all.
use_venv() {
  venv_is_current "${1:-all}" || make_venv "${1:-all}"
}

# The key in secret.key beside the site's fw.json stands in for FW_SECRET_KEY where that is unset;
# the program reads it by itself, so that it is in no environment.
secret_key_file() {
  local config=${FW_CONFIG:-fw.json}
  case $config in
    */*) printf '%s/secret.key\n' "${config%/*}" ;;
    *) printf 'secret.key\n' ;;
  esac
}

# Whether the key comes from somewhere else: a variable, a file that one names, or systemd.
has_other_key() {
  [ -n "${FW_SECRET_KEY+set}" ] || [ -n "${FW_SECRET_KEY_FILE-}" ] ||
    { [ -n "${CREDENTIALS_DIRECTORY-}" ] && [ -e "$CREDENTIALS_DIRECTORY/fw_secret_key" ]; }
}

# Has malloc ask for huge pages, with which a password's hash takes a tenth less time; in one arena,
# since those of further threads do not get any. It can be said only before a process starts; what
# is set already stays, and other C libraries than glibc do not look at it.
use_huge_pages() {
  export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1}"
}
