# What the Linux toolchains have in common: the libraries that cmake/deps.sh builds
# (cmake/Dependencies.cmake looks nowhere else when compiling for another machine).

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
