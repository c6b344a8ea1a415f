"""Lines that keep something beyond a step, and how they keep less of it: `averages`, `entries`."""
