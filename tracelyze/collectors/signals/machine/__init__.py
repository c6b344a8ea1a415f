"""What is recorded of time and the machine: steps, memory, devices, stacks, profiler windows."""
