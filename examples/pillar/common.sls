# Plain YAML: read by the master itself.
contact: ops@example.com
role: unassigned
