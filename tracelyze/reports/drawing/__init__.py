"""Charts and timelines as SVG and as data for scripts: axes, lines, bars, lanes.

Imports `markup` and `escaping`; knows no page.
"""
