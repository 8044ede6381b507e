#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where, and whether a user's program builds against it. Installs into a folder
# of its own; needs neither root nor Slurm.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
  dest=$(mktemp -d)
  export dest
  make -C "$PLEXRL_BUILD" install DESTDIR="$dest" >"$dest/install.log" 2>&1 || { cat "$dest/install.log"; return 1; }
  mv "$dest/install.log" "$dest.log"
}
teardown_file() { rm -rf "$dest" "$dest.log"; }

# The installation folders of this build as shell variables.
directories() {
  local name
  for name in PACKAGE_TARNAME prefix exec_prefix bindir sbindir libexecdir libdir includedir datarootdir datadir mandir docdir \
    slurmplugindir luamoduledir; do
    echo "$name=@$name@"
  done | (cd "$PLEXRL_BUILD" && ./config.status --silent --file=-)
  # shellcheck disable=SC2016
  echo 'systemdunitdir=$prefix/lib/systemd/system bashcompletionsdir=$datadir/bash-completion/completions'
}

# install.list without what configure left out.
expected_files() {
  local mode path
  eval "$(directories)"
  while read -r mode path; do
    case $path in
      *slurmplugindir*) [ -f "$PLEXRL_BUILD/spank_plexrl.la" ] || continue ;;
      *luamoduledir*) [ -f "$PLEXRL_BUILD/plexrl.la" ] || continue ;;
      */plexrl-engine) [ -f "$PLEXRL_BUILD/plexrl-engine" ] || continue ;;
    esac
    eval "echo \"$mode $path\""
  done <"$top/tests/integration/install.list" | sort
}

# builds COMPILER FLAGS... SOURCE: compiles against the installed files alone and runs the program.
builds() {
  eval "$(directories)"
  local flags program=$BATS_TEST_TMPDIR/client
  flags=$(PKG_CONFIG_SYSROOT_DIR=$dest PKG_CONFIG_PATH=$dest$libdir/pkgconfig pkg-config --cflags --libs plexrl)
  # shellcheck disable=SC2086
  "$@" -Wall -Wextra -Werror -o "$program" $flags
  LD_LIBRARY_PATH=$dest$libdir run -0 "$program"
  [ "$output" = "$(cat "$top/VERSION") UNAVAILABLE" ]
}

@test "make install puts exactly the files of install.list, with these modes" {
  diff <(expected_files) <(cd "$dest" && find . ! -type d -printf '%m /%P\n' | sort)
}

@test "a C99 program builds and runs with pkg-config plexrl" {
  builds gcc -std=c99 -pedantic "$top/tests/abi/installed_client.c"
}

@test "a C++ program builds and runs with pkg-config plexrl" {
  builds g++ -std=c++17 -pedantic "$top/tests/abi/installed_client.cc"
}

@test "the programs run from where they were installed" {
  eval "$(directories)"
  local program
  for program in "$bindir/plexrl" "$sbindir/plexrld"; do
    run -0 "$dest$program" --version
    [[ $output == *"$(cat "$top/VERSION")"* ]]
  done
}

@test "systemd accepts the units" {
  command -v systemd-analyze >/dev/null || skip "needs systemd-analyze (package systemd)"
  eval "$(directories)"
  # Paths of units are looked up in the system that runs: ExecStart must name a file that is there.
  mkdir "$BATS_TEST_TMPDIR/units"
  cp "$dest$systemdunitdir/plexrld.socket" "$BATS_TEST_TMPDIR/units"
  sed "s|ExecStart=|&$dest|; /^Documentation=/d" "$dest$systemdunitdir/plexrld.service" \
    >"$BATS_TEST_TMPDIR/units/plexrld.service"
  grep -qx "ExecStart=$dest$sbindir/plexrld .*" "$BATS_TEST_TMPDIR/units/plexrld.service"
  run -0 systemd-analyze verify --man=no "$BATS_TEST_TMPDIR"/units/plexrld.{socket,service}
  [[ $output != *plexrld* ]]
}

@test "make uninstall leaves no file" {
  cp -r "$dest" "$BATS_TEST_TMPDIR/copy"
  make -C "$PLEXRL_BUILD" uninstall DESTDIR="$BATS_TEST_TMPDIR/copy" >/dev/null
  run -0 find "$BATS_TEST_TMPDIR/copy" ! -type d
  [ -z "$output" ]
}
