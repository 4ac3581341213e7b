return fp8.delayed {}
