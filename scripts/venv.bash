# Sourced by its neighbours: finds the project's folder and keeps its virtual environment as
# constraints-dev.txt and pyproject.toml say. It reports on standard error.
# shellcheck shell=bash

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
python=$root/.venv/bin/python
made_from=$root/.venv/made-from

# The inputs of an environment. The folder is one of them, since the environment names it.
recipe() {
  printf '%s\n' "$root"
  cat "$root/pyproject.toml" "$root/constraints-dev.txt"
}

venv_is_current() {
  [ -x "$python" ] && [ -e "$made_from" ] && recipe | cmp -s - "$made_from"
}

# Makes the environment anew, or brings a finished one up to date where it stands, which leaves
# running services alone as long as no library changes. Content is compared, not times: a checkout
# changes times. Two callers make it once; one that is killed half-way leaves no recipe behind, and
# the next begins again.
make_venv() (
  if ! { exec 9>"$root/.venv.lock"; } 2>/dev/null; then
    printf 'fw: %s is not ready and can not be written; its owner runs %s/scripts/fw version\n' \
      "$root/.venv" "$root" >&2
    exit 1
  fi
  flock 9
  if venv_is_current; then
    exit
  fi
  printf 'fw: preparing %s ...\n' "$root/.venv" >&2
  was=
  if [ -e "$made_from" ]; then
    read -r was <"$made_from"
  fi
  if [ "$was" != "$root" ] || [ ! -x "$python" ]; then
    base=${PYTHON:-python3}
    if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      printf 'fw: Python 3.11 or newer is needed; set PYTHON to name one\n' >&2
      exit 1
    fi
    "$base" -m venv --clear "$root/.venv"
  fi
  rm -f "$made_from"
  # -I: neither the caller's folder nor PYTHONPATH may stand in for a module of pip's
  install=("$python" -I -m pip install -qq --disable-pip-version-check
    --root-user-action ignore)
  "${install[@]}" --require-hashes --requirement "$root/constraints-dev.txt" >&2
  "${install[@]}" --no-deps --no-build-isolation --editable "$root" >&2
  recipe >"$made_from.new"
  mv "$made_from.new" "$made_from"
)

use_venv() {
  venv_is_current || make_venv
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
# since those of further threads don't get any. It can be said only before a process starts; what
# is set already stays, and other C libraries than glibc don't look at it.
use_huge_pages() {
  export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1}"
}
