#!/usr/bin/env bash
# Installs xgen-model on a host with systemd: docs/bare-metal.md. Run it again to repair what it has made.
set -euo pipefail
umask 022 # the agent is not root, and has to read what is installed here

readonly PREFIX=/opt/xgen-model
readonly RELEASES=$PREFIX/releases
readonly CURRENT=$PREFIX/current
readonly PREVIOUS=$PREFIX/previous
readonly COMMAND=/usr/local/bin/xgen-model
readonly CONFIG=/etc/xgen-model
readonly DATA=/var/lib/xgen-model
readonly ACCOUNT=xgen-model
readonly UNITS=(xgen-model.service xgen-model-stop.service)
readonly UNIT_DIR=/etc/systemd/system
readonly SYSUSERS=/usr/lib/sysusers.d/xgen-model.conf
readonly TMPFILES=/usr/lib/tmpfiles.d/xgen-model.conf
readonly LOCK=/run/xgen-model-install.lock
readonly NEEDED_MIB=600
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE

usage() {
  cat <<'USAGE'
Usage: install.sh [SOURCE] [OPTIONS]
       install.sh --upgrade [SOURCE]      a newer release; models go on running
       install.sh --rollback              the release before
       install.sh --uninstall [--purge]   --purge: settings, manifests and models too

SOURCE, of the package:
  --wheel FILE         a wheel; what it needs comes from the package index
  --wheelhouse DIR     a folder of wheels, xgen-model's and all that it needs; nothing is downloaded
  --version VERSION    of the package index or the wheelhouse [default: the newest]

OPTIONS:
  --python PYTHON      3.11 or newer [default: the newest that is found]
  --no-start           install, but enable and start nothing
  --dry-run            print what would be done
USAGE
}

fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
say() { printf '%s\n' "$*"; }

do_it() {
  if [ "$DRY_RUN" = yes ]; then
    printf 'would run:'; printf ' %q' "$@"; printf '\n'
  else
    "$@"
  fi
}

# --- what was asked for -------------------------------------------------------------------------

ACTION=install WHEEL='' WHEELHOUSE='' VERSION='' PYTHON='' START=yes DRY_RUN=no PURGE=no

value_of() { [ $# -ge 2 ] && [ -n "$2" ] || fail "$1 needs a value; --help says more"; }

choose() {
  [ "$ACTION" = install ] || fail "choose one of --upgrade, --rollback, --uninstall"
  ACTION=$1
}

while [ $# -gt 0 ]; do
  case $1 in
    --wheel) value_of "$@"; WHEEL=$2; shift ;;
    --wheelhouse) value_of "$@"; WHEELHOUSE=$2; shift ;;
    --version) value_of "$@"; VERSION=$2; shift ;;
    --python) value_of "$@"; PYTHON=$2; shift ;;
    --upgrade) choose upgrade ;;
    --rollback) choose rollback ;;
    --uninstall) choose uninstall ;;
    --purge) PURGE=yes ;;
    --no-start) START=no ;;
    --dry-run) DRY_RUN=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; fail "unknown option $1" ;;
  esac
  shift
done
[ "$PURGE" = no ] || [ "$ACTION" = uninstall ] || fail "--purge goes with --uninstall"
[ -z "$WHEEL" ] || [ -z "$WHEELHOUSE" ] || fail "--wheel and --wheelhouse are two sources; give one"
[ -z "$WHEEL" ] || [ -z "$VERSION" ] || fail "--wheel is a version already; leave --version out"
[ -z "$WHEEL" ] || [ -f "$WHEEL" ] || fail "there is no wheel $WHEEL"
[ -z "$WHEELHOUSE" ] || [ -d "$WHEELHOUSE" ] || fail "there is no folder $WHEELHOUSE"

# --- whether it can be done ---------------------------------------------------------------------

check_host() {
  [ "$(uname -s)" = Linux ] || fail "xgen-model runs on Linux, not on $(uname -s)"
  [ "$(id -u)" = 0 ] || [ "$DRY_RUN" = yes ] || fail "run it as root: sudo $0"
  command -v systemctl >/dev/null && [ -d /run/systemd/system ] ||
    fail "this host does not run systemd; in a container use the image, elsewhere \`xgen-model run\`"
}

# Two at once would remove each other's release.
be_the_only_one() {
  [ "$DRY_RUN" = no ] || return 0
  exec 9>"$LOCK"
  flock --nonblock 9 || fail "another install.sh is at work on this host; nothing was changed"
}

is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

choose_python() {
  local each
  if [ -n "$PYTHON" ]; then
    command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON"
    is_new_enough "$PYTHON" || fail "xgen-model needs Python 3.11 or newer; $PYTHON is $("$PYTHON" -V 2>&1)"
  else
    for each in python3.14 python3.13 python3.12 python3.11 python3; do
      if command -v "$each" >/dev/null && is_new_enough "$each"; then PYTHON=$each; break; fi
    done
    [ -n "$PYTHON" ] || fail "xgen-model needs Python 3.11 or newer. RHEL: dnf install python3.12; Ubuntu 22.04: apt install python3.11 python3.11-venv"
  fi
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$PYTHON has no venv. Debian, Ubuntu: apt install python3-venv (or $(basename "$PYTHON")-venv)"
}

check_disk() {
  local free
  free=$(df -Pm "$(existing "$PREFIX")" | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$NEEDED_MIB" ] || fail "$PREFIX needs $NEEDED_MIB MiB of disk; $free MiB are free"
}

existing() {
  local path=$1
  while [ ! -d "$path" ]; do path=$(dirname "$path"); done
  printf '%s\n' "$path"
}

# --- the package --------------------------------------------------------------------------------

pip_source() {
  local name=xgen-model${VERSION:+==$VERSION}
  if [ -n "$WHEELHOUSE" ]; then
    printf '%s\n' --no-index --find-links "$WHEELHOUSE" "$name"
  elif [ -n "$WHEEL" ]; then
    printf '%s\n' "$WHEEL"
  else
    printf '%s\n' "$name"
  fi
}

# A new folder of its own; nothing that runs is touched before it answers.
install_release() {
  local source fresh version
  mapfile -t source < <(pip_source)
  fresh=$RELEASES/$(date -u +%Y%m%dT%H%M%SZ)-$$
  say "installing ${source[-1]} into $fresh"
  do_it install -d -m 0755 "$PREFIX" "$RELEASES"
  if [ "$DRY_RUN" = yes ]; then
    do_it "$PYTHON" -m venv "$fresh"
    do_it "$fresh/bin/pip" install "${source[@]}"
    return
  fi
  # shellcheck disable=SC2064  # as it is named now
  trap "rm -rf '$fresh'" EXIT
  "$PYTHON" -m venv "$fresh"
  "$fresh/bin/pip" install --quiet --disable-pip-version-check "${source[@]}" ||
    fail "the package could not be installed; nothing was changed"
  version=$("$fresh/bin/xgen-model" --version) ||
    fail "what was installed does not run; nothing was changed"
  trap - EXIT
  if command -v restorecon >/dev/null; then restorecon -R "$fresh" || true; fi
  keep_units "$fresh"
  switch_to "$fresh"
  say "$version is the current release"
}

# With the release that they belong to, for the way back; whole, or not there.
keep_units() {
  local unit
  install -d -m 0755 "$1/units.new"
  for unit in "${UNITS[@]}"; do install -m 0644 "$HERE/$unit" "$1/units.new/$unit"; done
  mv -T "$1/units.new" "$1/units"
}

target_of() { readlink "$1" 2>/dev/null || true; }

# One rename each: there is a command at every moment.
link() {
  do_it ln -sfn "$1" "$2.new"
  do_it mv -Tf "$2.new" "$2"
}

# The way back comes first. It leads to what the agent runs from, if there is one: where an earlier
# upgrade was cut off before its restart, that is not the current release.
switch_to() {
  local before
  before=$(release_of_agent)
  if [ -z "$before" ] || [ "$before" = "$1" ]; then before=$(target_of "$CURRENT"); fi
  if [ -n "$before" ] && [ "$before" != "$1" ]; then link "$before" "$PREVIOUS"; fi
  link "$1" "$CURRENT"
}

# `previous`, or where a switch was cut off between its links the newest that is older.
release_before() {
  local current before each
  current=$(target_of "$CURRENT") before=$(target_of "$PREVIOUS")
  if [ "$before" = "$current" ]; then
    before=''
    for each in "$RELEASES"/*; do
      if [[ $each < $current ]] && [ -d "$each/units" ]; then before=$each; fi
    done
  fi
  printf '%s\n' "$before"
}

# Once the agent has been restarted. Backends of the agent's own environment may run from any of them.
remove_old_releases() {
  local each used
  used=$(releases_in_use)
  for each in "$RELEASES"/*; do
    case $each in
      "$(target_of "$CURRENT")" | "$(target_of "$PREVIOUS")" | "$RELEASES/*") continue ;;
    esac
    if ! grep -qxF "$each" <<<"$used"; then do_it rm -rf "$each"; fi
  done
}

releases_in_use() { releases_named_by /proc/[0-9]*/cmdline; }

release_of_agent() {
  local pid
  pid=$(property MainPID)
  if [ "${pid:-0}" != 0 ]; then releases_named_by "/proc/$pid/cmdline" | head -n 1; fi
}

releases_named_by() { # CMDLINE…: files of processes, which may have ended
  { cat "$@" 2>/dev/null || true; } | tr '\0' '\n' | { grep -oE "^$RELEASES/[^/]+" || true; } | sort -u
}

property() { systemctl show "${UNITS[0]}" --property="$1" --value 2>/dev/null || true; }

# --- the host -----------------------------------------------------------------------------------

put() { # MODE FROM TO
  if ! cmp -s "$2" "$3"; then do_it install -D -m "$1" "$2" "$3"; fi
}

# Never over what an operator may have edited: the newer one is put beside it.
put_settings() { # MODE FROM TO
  if [ ! -e "$3" ]; then
    do_it install -D -m "$1" "$2" "$3"
  elif ! cmp -s "$2" "$3"; then
    do_it install -D -m "$1" "$2" "$3.dist"
  fi
}

install_host_files() {
  local unit
  put 0644 "$HERE/sysusers.conf" "$SYSUSERS"
  put 0644 "$HERE/tmpfiles.conf" "$TMPFILES"
  do_it systemd-sysusers "$SYSUSERS"
  do_it systemd-tmpfiles --create "$TMPFILES"
  put_settings 0640 "$HERE/xgen-model.env" "$CONFIG/xgen-model.env"
  do_it chgrp "$ACCOUNT" "$CONFIG/xgen-model.env"
  if [ -z "$(ls -A "$CONFIG/manifest" 2>/dev/null)" ]; then
    do_it install -D -m 0644 "$HERE/example.yaml" "$CONFIG/manifest/models.yaml"
  fi
  do_it install -d -m 0755 "$(dirname "$COMMAND")"
  if [ -e "$COMMAND" ] && [ ! -L "$COMMAND" ]; then fail "$COMMAND is not ours; move it away"; fi
  link "$CURRENT/bin/xgen-model" "$COMMAND"
  install_units
}

# Those of the release that counts; one of an older install.sh has none of its own.
install_units() {
  local unit from=$CURRENT/units
  [ -d "$from" ] && [ "$DRY_RUN" = no ] || from=$HERE
  for unit in "${UNITS[@]}"; do put 0644 "$from/$unit" "$UNIT_DIR/$unit"; done
  do_it systemctl daemon-reload
}

start_agent() {
  [ "$START" = yes ] || { say "not started: systemctl enable --now xgen-model"; return; }
  do_it systemctl enable --quiet xgen-model.service
  do_it systemctl start xgen-model.service || fail_to_start
}

# One that was stopped stays so; one that has failed was not stopped.
restart_agent() {
  if [ "$START" = no ]; then say "not restarted: systemctl restart xgen-model"; return; fi
  case $(property ActiveState) in
    inactive | deactivating) say "the agent is stopped, and left so: systemctl start xgen-model" ;;
    *) do_it systemctl restart xgen-model.service || fail_to_start ;;
  esac
  remove_old_releases
}

fail_to_start() {
  fail "the agent does not start: journalctl -u xgen-model -n 50; \`install.sh --rollback\` brings the release before back"
}

# --- the actions --------------------------------------------------------------------------------

install_all() {
  check_disk
  if [ ! -x "$CURRENT/bin/xgen-model" ]; then
    choose_python
    install_release
    install_host_files
    start_agent
  elif [ "$ACTION" = upgrade ]; then
    choose_python
    install_release
    install_host_files
    restart_agent
  else
    say "$("$CURRENT/bin/xgen-model" --version) is installed; --upgrade takes another"
    install_host_files
    start_agent
  fi
  say "settings: $CONFIG/xgen-model.env; manifests: $CONFIG/manifest; log: journalctl -u xgen-model"
}

roll_back() {
  local before
  before=$(release_before)
  [ -n "$before" ] && [ -x "$before/bin/xgen-model" ] || fail "there is no release before this one"
  switch_to "$before"
  say "$("$before/bin/xgen-model" --version) is the current release again"
  install_units
  restart_agent
}

# The unit that stops models goes last: a run that was cut off can be run again.
uninstall() {
  local unit
  if [ -e "$UNIT_DIR/xgen-model-stop.service" ]; then stop_models; fi
  for unit in "${UNITS[@]}"; do do_it rm -f "$UNIT_DIR/$unit"; done
  do_it systemctl daemon-reload
  if [ -L "$COMMAND" ]; then do_it rm -f "$COMMAND"; fi
  do_it rm -rf "$PREFIX" "$SYSUSERS" "$TMPFILES"
  if [ "$PURGE" = yes ]; then
    for unit in "${UNITS[@]}"; do do_it rm -rf "$UNIT_DIR/$unit.d"; done
    do_it systemctl daemon-reload
    do_it rm -rf "$CONFIG" "$DATA"
    if getent passwd "$ACCOUNT" >/dev/null; then do_it userdel "$ACCOUNT"; fi
    say "removed, with settings, manifests and models"
  else
    say "removed; $CONFIG, $DATA and changes by systemctl edit are kept (--purge removes them)"
  fi
}

stop_models() {
  [ -x "$COMMAND" ] ||
    fail "$COMMAND is gone, so no model can be stopped; run install.sh first, then --uninstall again"
  if [ -e "$UNIT_DIR/xgen-model.service" ]; then do_it systemctl disable --quiet xgen-model.service; fi
  if [ ! -e "$DATA/version" ] && ! grep -qs '^XGEN_DATA_DIR=' "$CONFIG/xgen-model.env"; then return; fi # it never ran
  do_it systemctl start xgen-model-stop.service ||
    fail "models could not be stopped: journalctl -u xgen-model-stop; nothing was removed"
}

check_host
be_the_only_one
case $ACTION in
  install | upgrade) install_all ;;
  rollback) roll_back ;;
  uninstall) uninstall ;;
esac
