"""What programs of several tests begin with, for children that have a real framework."""

from __future__ import annotations

APPLY_AND_UNDO = """
def apply(settings):
    before = {name: s.switch.read() for name, s in settings.items()}
    for each in settings.values(): each.switch.write(each.wanted)
    return before
def undo(settings, before):
    for name in reversed(list(settings)): settings[name].switch.write(before[name])
    return {name: s.switch.read() for name, s in settings.items()}
"""
"""Write switches by name and give what they had before; give that back, and read what they have."""
