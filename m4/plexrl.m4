# SPDX-License-Identifier: Apache-2.0

# --with-slurm[=PREFIX]: headers of libslurm-dev. Default: on when found.
AC_DEFUN([PLEXRL_WITH_SLURM], [
  AC_ARG_WITH([slurm], [AS_HELP_STRING([--with-slurm@<:@=PREFIX@:>@], [build the Slurm plugins (default: when the headers are found)])],
    [], [with_slurm=check])
  SLURM_CPPFLAGS=
  have_slurm=no
  slurm_summary="off"
  AS_IF([test "$with_slurm" != no], [
    AS_CASE([$with_slurm], [yes|check], [], [SLURM_CPPFLAGS="-isystem $with_slurm/include"])
    plexrl_save="$CPPFLAGS"; CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"
    AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <slurm/slurm.h>]])], [have_slurm=yes])
    CPPFLAGS="$plexrl_save"
    AS_IF([test $have_slurm = yes], [
      slurm_version=$(printf '#include <slurm/slurm_version.h>\nSLURM_VERSION_NUMBER\n' | $CXX $SLURM_CPPFLAGS -E -P -x c++ - 2>/dev/null | tail -n 1)
      slurm_version=$(printf '%d.%02d.%d' $((slurm_version >> 16)) $((slurm_version >> 8 & 255)) $((slurm_version & 255)))
      slurm_summary="for Slurm ${slurm_version:-of unknown version}"],
      [AS_IF([test "$with_slurm" != check], [AC_MSG_ERROR([--with-slurm: <slurm/slurm.h> not found: install libslurm-dev])])
       slurm_summary="off (no <slurm/slurm.h>: install libslurm-dev)"])])
  AC_ARG_WITH([slurm-plugin-dir], [AS_HELP_STRING([--with-slurm-plugin-dir=DIR], [where the Slurm plugins are installed (default: LIBDIR/slurm-wlm)])],
    [slurmplugindir="$withval"], [slurmplugindir='${libdir}/slurm-wlm'])
  AC_SUBST([slurmplugindir])
  AC_SUBST([SLURM_CPPFLAGS])
  AM_CONDITIONAL([HAVE_SLURM], [test $have_slurm = yes])
])

# --with-lua: the module for a site's job_submit.lua. Default: on when the plugins are built and
# Lua 5.1, which Slurm's own packages use, is found.
AC_DEFUN([PLEXRL_WITH_LUA], [
  AC_ARG_WITH([lua], [AS_HELP_STRING([--with-lua], [build the Lua 5.1 module for job_submit.lua (default: when found)])], [], [with_lua=check])
  have_lua=no
  lua_summary="off"
  AS_IF([test "$with_lua" != no && test $have_slurm = no], [
    AS_IF([test "$with_lua" != check], [AC_MSG_ERROR([--with-lua: needs the Slurm plugins (install libslurm-dev)])])
    lua_summary="off (needs the Slurm plugins)"])
  AS_IF([test "$with_lua" != no && test $have_slurm = yes], [
    PKG_CHECK_MODULES([LUA], [lua5.1], [have_lua=yes; lua_summary="Lua 5.1"],
      [AS_IF([test "$with_lua" != check], [AC_MSG_ERROR([--with-lua: Lua 5.1 not found: install liblua5.1-0-dev])])
       lua_summary="off (no Lua 5.1: install liblua5.1-0-dev)"])])
  AC_ARG_WITH([lua-module-dir], [AS_HELP_STRING([--with-lua-module-dir=DIR], [where the Lua module is installed (default: LIBDIR/lua/5.1)])],
    [luamoduledir="$withval"], [luamoduledir='${libdir}/lua/5.1'])
  AC_SUBST([luamoduledir])
  AM_CONDITIONAL([HAVE_LUA], [test $have_lua = yes])
])

# --with-libtorch=DIR, --disable-engine-torch
AC_DEFUN([PLEXRL_WITH_TORCH], [
  AC_ARG_ENABLE([engine-torch], [AS_HELP_STRING([--disable-engine-torch], [do not build plexrl-engine])], [], [enable_engine_torch=yes])
  AC_ARG_WITH([libtorch], [AS_HELP_STRING([--with-libtorch=DIR], [the torch directory of a wheel or an unzipped libtorch (default: the system's)])],
    [], [with_libtorch=system])
  torch_summary="off"
  AS_IF([test "$enable_engine_torch" = yes], [
    AS_IF([test "$with_libtorch" = system],
      [TORCH_CPPFLAGS="-isystem /usr/include/torch/csrc/api/include"; TORCH_LIBS="-ltorch -ltorch_cpu -lc10"; torch_header=/usr/include/torch/version.h
       for dir in /usr/include/torch/csrc/api/include/torch/version.h; do test -f $dir && torch_header=$dir; done],
      [TORCH_CPPFLAGS="-isystem $with_libtorch/include -isystem $with_libtorch/include/torch/csrc/api/include"
       TORCH_LIBS="-L$with_libtorch/lib -Wl,-rpath,$with_libtorch/lib -ltorch -ltorch_cpu -lc10"
       torch_header=$with_libtorch/include/torch/version.h
       test -f $torch_header || torch_header=$with_libtorch/include/torch/csrc/api/include/torch/version.h
       AS_IF([test -f $with_libtorch/lib/libtorch_cuda.so], [TORCH_LIBS="$TORCH_LIBS -Wl,--no-as-needed -ltorch_cuda -lc10_cuda -Wl,--as-needed"])
       AS_IF([test "$(nm -DC $with_libtorch/lib/libc10.so 2>/dev/null | grep -c __cxx11)" = 0],
         [AC_MSG_ERROR([--with-libtorch: this libtorch has the old C++ string ABI; use a build with the new one (wheels from 2.6 on)])])])
    AS_IF([test ! -f "$torch_header"], [AC_MSG_ERROR([LibTorch headers not found ($torch_header): run 'make deps', give --with-libtorch=DIR, or --disable-engine-torch])])
    torch_version=$(printf '#include <torch/version.h>\nTORCH_VERSION\n' | $CXX $TORCH_CPPFLAGS -E -P -x c++ - 2>/dev/null | tail -n 1 | tr -d '"')
    torch_summary="LibTorch ${torch_version:-of unknown version} ($with_libtorch)"])
  AC_SUBST([TORCH_CPPFLAGS])
  AC_SUBST([TORCH_LIBS])
  AM_CONDITIONAL([ENGINE_TORCH], [test "$enable_engine_torch" = yes])
])

# --with-ucx: without it the transport between nodes has its loopback only, and plexrld no other nodes.
AC_DEFUN([PLEXRL_WITH_UCX], [
  AC_ARG_WITH([ucx], [AS_HELP_STRING([--with-ucx], [transfer between nodes by UCX (default: when found)])], [], [with_ucx=check])
  have_ucx=no
  ucx_summary="off; loopback only"
  AS_IF([test "$with_ucx" != no], [
    PKG_CHECK_MODULES([UCX], [ucx >= 1.13], [have_ucx=yes; ucx_summary="$($PKG_CONFIG --modversion ucx)"],
      [AS_IF([test "$with_ucx" != check], [AC_MSG_ERROR([--with-ucx: UCX 1.13 or newer not found: install libucx-dev])])
       ucx_summary="off (no UCX 1.13 or newer: install libucx-dev); loopback only"])])
  AM_CONDITIONAL([HAVE_UCX], [test $have_ucx = yes])
])

# The CUDA driver is opened at run time: every build has the cuda device backend and none needs CUDA's
# headers. With --with-cuda the tests compare our declarations of the driver API with <cuda.h>.
AC_DEFUN([PLEXRL_WITH_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=PREFIX@:>@], [check the cuda device backend against the toolkit's <cuda.h> (default: when found)])],
    [], [with_cuda=check])
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl], [collectives by NCCL])], [], [with_nccl=no])
  AS_IF([test "$with_nccl" != no], [AC_MSG_ERROR([this version has no collectives; build without --with-nccl])])
  CUDA_CPPFLAGS=
  have_cuda_header=no
  AS_IF([test "$with_cuda" != no], [
    AS_CASE([$with_cuda], [yes|check], [plexrl_prefix=/usr/local/cuda], [plexrl_prefix="$with_cuda"])
    AS_IF([test -f "$plexrl_prefix/include/cuda.h"], [CUDA_CPPFLAGS="-isystem $plexrl_prefix/include"])
    plexrl_save="$CPPFLAGS"; CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
    AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <cuda.h>
#if CUDA_VERSION < 11000
#error too old
#endif]])], [have_cuda_header=yes])
    CPPFLAGS="$plexrl_save"
    AS_IF([test $have_cuda_header = no && test "$with_cuda" != check],
      [AC_MSG_ERROR([--with-cuda: no <cuda.h> of CUDA 11 or newer: give --with-cuda=PREFIX of a toolkit])])])
  AS_IF([test $have_cuda_header = yes], [cuda_summary="driver opened at run time, checked against <cuda.h>"],
    [cuda_summary="driver opened at run time, not checked against <cuda.h>"])
  AC_SUBST([CUDA_CPPFLAGS])
  AM_CONDITIONAL([HAVE_CUDA_HEADER], [test $have_cuda_header = yes])
])

AC_DEFUN([PLEXRL_SANITIZERS], [
  AC_ARG_ENABLE([sanitizer], [AS_HELP_STRING([--enable-sanitizer=LIST], [address,undefined or thread])], [], [enable_sanitizer=])
  SANITIZER_FLAGS=
  AS_IF([test -n "$enable_sanitizer" && test "$enable_sanitizer" != no],
    [SANITIZER_FLAGS="-fsanitize=$enable_sanitizer -fno-omit-frame-pointer -fno-sanitize-recover=all"])
  AC_ARG_ENABLE([fuzzing], [AS_HELP_STRING([--enable-fuzzing], [build the libFuzzer targets (needs CXX=clang++)])], [], [enable_fuzzing=no])
  AM_CONDITIONAL([FUZZING], [test "$enable_fuzzing" = yes])
  AS_IF([test "$enable_fuzzing" = yes], [
    plexrl_save="$CXXFLAGS"; CXXFLAGS="$CXXFLAGS -fsanitize=fuzzer-no-link"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [], [AC_MSG_ERROR([--enable-fuzzing needs clang: configure with CXX=clang++ CC=clang])])
    CXXFLAGS="$plexrl_save"
    SANITIZER_FLAGS="$SANITIZER_FLAGS -fsanitize=fuzzer-no-link"])
  AC_SUBST([SANITIZER_FLAGS])
])

AC_DEFUN([PLEXRL_WARNINGS], [
  WARNING_FLAGS="-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion"
  HARDENING_FLAGS="-fstack-protector-strong -fstack-clash-protection -fcf-protection"
  AS_IF([test -z "$SANITIZER_FLAGS"], [HARDENING_FLAGS="$HARDENING_FLAGS -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"])
  HARDENING_LDFLAGS="-Wl,-z,relro -Wl,-z,now -Wl,--as-needed"
  AC_SUBST([WARNING_FLAGS])
  AC_SUBST([HARDENING_FLAGS])
  AC_SUBST([HARDENING_LDFLAGS])
])

# The sources of one target are compiled together (scripts/unity-makefile): a third of the time for the whole.
AC_DEFUN([PLEXRL_UNITY], [
  AC_ARG_ENABLE([unity], [AS_HELP_STRING([--disable-unity], [compile each source alone: quicker again after a small change, slower in whole])],
    [], [enable_unity=yes])
  AC_PATH_PROG([PYTHON3], [python3])
  AS_IF([test "$enable_unity" = yes && test -z "$PYTHON3"],
    [AC_MSG_ERROR([python3 is missing: run 'make deps' or configure with --disable-unity])])
])
