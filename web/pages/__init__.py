"""The pages that people see: HTML made here, every change a call of the JSON API by a script."""
