# Where the programs of the fuzz targets are built; sourced in fuzz/.
host=$(rustc -vV | sed -n 's/^host: //p')
# The device plane's target is built by CMake (device/tests/CMakeLists.txt).
device_target=fuzz_hostile_frontend

program_of() { # TARGET
  if [ "$1" = "$device_target" ]; then
    echo "../build/device-asan/tests/$1"
  else
    echo "${CARGO_TARGET_DIR:-../target}/$host/fuzz/$1"
  fi
}
