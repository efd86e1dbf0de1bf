"""The HTML report of a run: reading its files, packing its episodes, rendering one page."""
