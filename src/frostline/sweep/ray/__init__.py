"""Runs as tasks of Ray, on a cluster or on this machine.

Start with ``driver``, which decides which runs one task trains, hands them out and publishes their results. ``node`` is what a
task does, and ``cluster`` connects to Ray.

A task needs no shared folder. It gets the settings and the examples from Ray's object store, trains its runs in a folder of its
own, and returns the bytes of the files that it would have published. Only the driver publishes.
"""
