# Sourced: $kernels, what a plugin of a test is linked with. Objects with sanitizers fit no shared
# library, so a plugin has those of the release build then.
kernels=${BUILD:-$root/build/release}/libkernels.a
[ "${CONFIG:-release}" != asan ] || kernels=$root/build/release/libkernels.a
if [ ! -f "$kernels" ]; then
    echo "needs $kernels: make all"
    exit 77
fi
