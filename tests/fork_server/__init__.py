"""Programs of the tests in processes that are forked from a Python with torch in memory, instead of started anew.

Half a program of these tests is two seconds of `import torch` and two more of `import torch._dynamo` at its first
optimizer. `client.ForkServer.run` takes a command and gives what `subprocess.run` gives; `server` is the process behind
it, one for all workers of a run of pytest and for each list of modules.

What is the same as in a process that was started: pid, arguments, environment, working directory, descriptors 0 to 2,
exit status and the interpreter's own way out (excepthook, atexit, finalization); the command line of tracelyze; and for
`tracelyze collect` its environment and the injected sitecustomize, which installs the hooks at the script's `import
torch`. What is not: torch, torch._dynamo, pyarrow and the modules of tracelyze are in memory before; /proc shows the
server's command line; the traceback of an exception begins with a line of the server; at the end, modules and libraries
that were in memory before are not taken apart, but for those of the collector, nor what stands in `sys` and `builtins`
where a program comes to its end or exits with a number. Where the start or the last end of a process is what a test is
about, it starts one: the fixture `collect_started`, the function `run_started`.
"""
